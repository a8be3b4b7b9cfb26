"""Train a model: python train.py --config configs/main.yaml [--key value …]"""

import signal

if __name__ == "__main__":  # Ctrl-C while torch is imported, for seconds, ends without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import inspect
import itertools
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerStatus
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from callbacks import MetricsFile, SampleTrace, SpeculativeAcceptance, Throughput
from callbacks.keep_last import KeepLast, RunCheckpoint
from callbacks.progress import StepProgress
from specmtp.data.datamodule import TextDataModule
from specmtp.errors import one_line_errors
from specmtp.nn.config import GPTConfig
from specmtp.training.checkpoint_io import AtomicCheckpointIO
from specmtp.training.modules import DraftModule, GPTModule, MTPHeadsModule
from specmtp.training.optim import OptimConfig
from specmtp.training.resume import check_same_training, find_run
from specmtp.usage import plain_sentence, refuse_duplicate_keys

MAX_STEPS = 10**9


class TrainCLI(LightningCLI):
    """LightningCLI with a run's folder: runs/NAME, then runs/NAME-2, …; a second run never writes into the first's."""

    keep_last: KeepLast

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--run_name", type=str, default="main", help="name of the run's folder")
        parser.add_argument("--runs_dir", type=str, default="runs", help="folder of all runs")
        parser.add_argument(
            "--ckpt_path",
            type=str | None,
            default=None,
            help="a checkpoint to continue from; 'last' continues the newest run of this name, or begins one",
        )
        parser.link_arguments("data.symbols", "model.init_args.vocabulary", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.link_arguments("seed_everything", "model.init_args.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        super().parse_arguments(parser, args)
        seed = self.config.seed_everything
        if isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ValueError(f"seed_everything must be a whole number from 0 to 2**32 - 1, got {seed}")

    def before_instantiate_classes(self) -> None:
        config, trainer = self.config, self.config.trainer
        if not config.runs_dir:
            raise ValueError("runs_dir must name a folder, got nothing")
        self.run_dir, self.resume_from = find_run(Path(config.runs_dir), config.run_name, config.ckpt_path)
        if trainer.fast_dev_run:
            raise ValueError("trainer.fast_dev_run keeps nothing: take --trainer.max_steps 2 --run_name try instead")
        if trainer.logger:
            raise ValueError(
                "trainer.logger: the run's folder and logger come from run_name and runs_dir; leave it out"
            )
        for name in ("max_steps", "log_every_n_steps", "accumulate_grad_batches", "val_check_interval"):
            value = getattr(trainer, name)
            if (
                value is not None
                and not 1 <= value <= MAX_STEPS
                and not (name == "val_check_interval" and 0 < value < 1)
            ):
                raise ValueError(f"trainer.{name} must be a number from 1 to {MAX_STEPS}, got {value}")
        if (shape := config.model.init_args.get("net")) and shape.pop("vocab_size") != GPTConfig.vocab_size:
            raise ValueError("model.net.vocab_size comes from the text: leave it out")
        accumulate = trainer.accumulate_grad_batches
        batches = trainer.max_steps * accumulate
        interval = trainer.val_check_interval = min(trainer.val_check_interval or batches, batches)
        if isinstance(interval, int) and interval % accumulate:
            raise ValueError(
                f"trainer.val_check_interval counts batches and must be a multiple of accumulate_grad_batches, "
                f"got {interval} and {accumulate}"
            )
        self.save_config_kwargs = {"overwrite": True}  # the folder is either new or the one being resumed

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        checkpoints = self.run_dir / "checkpoints"
        self.keep_last = KeepLast(checkpoints)
        common: dict[str, Any] = {
            "dirpath": checkpoints,
            "save_top_k": 1,
            "save_on_train_epoch_end": False,
            "auto_insert_metric_name": False,
            "enable_version_counter": False,
        }
        logger = TensorBoardLogger(self.run_dir.parent, name="", version=self.run_dir.name, default_hp_metric=False)
        kwargs["logger"] = logger
        kwargs["plugins"] = [*(self.config_init.trainer.plugins or []), AtomicCheckpointIO()]
        kwargs["callbacks"] = [
            *(self.config_init.trainer.callbacks or []),
            *([StepProgress()] if self.config.trainer.enable_progress_bar is not False else []),
            Throughput(),
            MetricsFile(),
            self.keep_last,
            RunCheckpoint(filename="best", monitor="val/objective", **common),
            RunCheckpoint(filename="last", **common),
        ]
        try:
            return super().instantiate_trainer(**kwargs)
        except (TypeError, RuntimeError, ModuleNotFoundError) as error:
            raise ValueError(f"these trainer settings do not fit together or not this machine: {error}") from error


def describe(cli: TrainCLI) -> str:
    """One line on what is about to be trained, on what, and where it goes."""
    net, data = cli.model.net, cli.datamodule
    size = net.num_parameters()
    heads = f" + {size['mtp']:,} in {net.mtp.depth} MTP depth(s)" if size["mtp"] else ""
    text = f"{data.corpus.name}, {len(data.corpus.text):,} characters, {data.vocab_size} symbols"
    resumed = f", continuing {cli.resume_from}" if cli.resume_from else ""
    return f"{cli.model.role}: {size['gpt']:,} parameters{heads}; text: {text}; run: {cli.run_dir}{resumed}"


def config_files(args: list[str]) -> list[Path]:
    """The files that --config names."""
    following = [b for a, b in itertools.pairwise(args) if a == "--config"]
    return [Path(f) for f in [*following, *(a.removeprefix("--config=") for a in args if a.startswith("--config="))]]


def option_names() -> list[str]:
    """The options a configuration may set, for the hint after a misspelt one."""
    parts = {
        "": ["run_name", "runs_dir", "ckpt_path", "config", "seed_everything"],
        "data.": inspect.signature(TextDataModule).parameters,
        "trainer.": inspect.signature(Trainer).parameters,
        "model.": [
            p for module in (GPTModule, DraftModule, MTPHeadsModule) for p in inspect.signature(module).parameters
        ],
        "model.net.": GPTConfig.__dataclass_fields__,
        "model.optimizer.": OptimConfig.__dataclass_fields__,
        "callback ": [p for c in (SpeculativeAcceptance, SampleTrace) for p in inspect.signature(c).parameters],
    }
    return [prefix + name for prefix, names in parts.items() for name in names]


def quiet_lightning() -> None:
    """Silences remarks of Lightning that a reader of this project's output can do nothing with."""
    for remark in (
        ".*does not have many workers.*",
        ".*exists and is not empty.*",
        ".*IterableDataset.*",
        ".*LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", remark)
    dull = ("💡", "GPU available", "TPU available", "`Trainer.fit` stopped", "Restor")
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).addFilter(lambda record: not record.getMessage().startswith(dull))


def main(args: list[str] | None = None) -> int:
    """Parses, trains, and returns the exit code: 0, or 128 + the signal that stopped the run."""
    quiet_lightning()
    for file in config_files(sys.argv[1:] if args is None else args):
        refuse_duplicate_keys(file)
    try:
        cli = TrainCLI(
            LightningModule,
            TextDataModule,
            run=False,
            subclass_mode_model=True,
            auto_configure_optimizers=False,
            seed_everything_default=1337,
            trainer_defaults={
                "max_epochs": -1,
                "check_val_every_n_epoch": None,
                "num_sanity_val_steps": 0,
                "enable_model_summary": False,
            },
            parser_kwargs={"exit_on_error": False, "allow_abbrev": False},
            args=args,
        )
    except (ArgumentError, ValueError) as error:
        if "are required: model" in str(error):
            raise ValueError("which model? name a config: python train.py --config configs/main.yaml") from error
        raise ValueError(plain_sentence(str(error), option_names())) from error
    trainer, max_steps = cli.trainer, cli.trainer.max_steps
    if cli.resume_from:
        step = check_same_training(cli.resume_from, cli.model, cli.datamodule)
        if step >= max_steps:
            rank_zero_info(f"{cli.resume_from} is already trained to step {step} of {max_steps}: nothing to do")
            return 0
    rank_zero_info(describe(cli))
    try:
        trainer.fit(cli.model, cli.datamodule, ckpt_path=cli.resume_from, weights_only=True)
    except SystemExit:
        if trainer.state.status != TrainerStatus.INTERRUPTED:
            raise
        return 128 + (cli.keep_last.signal or 2)
    if trainer.global_step < max_steps:
        raise ValueError(
            f"stopped at step {trainer.global_step} of {max_steps}: trainer.max_epochs, max_time or "
            "limit_train_batches ended the training before trainer.max_steps"
        )
    rank_zero_info(f"trained: {cli.run_dir}  (curves: tensorboard --logdir {cli.run_dir.parent})")
    return 0


if __name__ == "__main__":
    with one_line_errors(MisconfigurationException):
        sys.exit(main())
