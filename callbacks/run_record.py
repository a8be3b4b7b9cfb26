"""What a run leaves beside its checkpoints: metrics.json, and its speed while it trains."""

import time
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from specmtp.ledger.files import write_json


class Throughput(Callback):
    """Logs train/step_ms and train/tokens_per_s since the last log; validation and decoding are not counted."""

    def __init__(self) -> None:
        self._seconds, self._tokens, self._began = 0.0, 0, 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Tensor, batch_idx: int) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Tensor, batch_idx: int
    ) -> None:
        self._seconds += time.perf_counter() - self._began
        self._tokens += batch.shape[0] * (batch.shape[1] - 1) * trainer.world_size
        steps: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step and trainer.global_step % steps == 0 and self._tokens:
            micro_batches = steps * trainer.accumulate_grad_batches
            pl_module.log("train/step_ms", 1000 * self._seconds / micro_batches * trainer.accumulate_grad_batches)
            pl_module.log("train/tokens_per_s", self._tokens / self._seconds)
            self._seconds, self._tokens = 0.0, 0


class MetricsFile(Callback):
    """Writes metrics.json at every validation: curves, final values, parameter counts, seconds.

    The curves travel in the checkpoint, so that a resumed run continues them.
    """

    def __init__(self) -> None:
        self._curve: list[dict[str, float]] = []
        self._seconds_before, self._began = 0.0, 0.0
        self._folder: str | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"curve": self._curve, "seconds": self._seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._curve, self._seconds_before = list(state_dict["curve"]), state_dict["seconds"]

    @property
    def _seconds(self) -> float:
        return self._seconds_before + (time.perf_counter() - self._began if self._began else 0.0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = time.perf_counter()
        self._folder = trainer.log_dir  # asked of all processes: Lightning broadcasts it

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        values = {
            name: float(v)
            for name, v in trainer.logged_metrics.items()
            if name.startswith(("val/", "ladder/", "decode/", "counts/"))
        }
        self._curve.append({"step": trainer.global_step, **values})
        if trainer.is_global_zero and self._folder:
            write_json(Path(self._folder) / "metrics.json", self._record(trainer, pl_module))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts hyper-parameters and final figures side by side for TensorBoard's HParams page."""
        if self._curve and isinstance(trainer.logger, TensorBoardLogger):
            final = {f"final/{name}": v for name, v in self._curve[-1].items() if name.startswith(("val/", "ladder/"))}
            settings = {**pl_module.hparams, **trainer.datamodule.settings}  # type: ignore[attr-defined]
            trainer.logger.log_hyperparams(settings, final, step=trainer.global_step)

    def _record(self, trainer: Trainer, module: Any) -> dict[str, Any]:
        data = trainer.datamodule  # type: ignore[attr-defined]
        return {
            "role": module.role,
            "step": trainer.global_step,
            "max_steps": trainer.max_steps,
            "seconds": round(self._seconds, 3),
            "parameters": module.net.num_parameters(),
            "mtp_weight": module.mtp_weight,
            "mtp_depth": module.net.mtp.depth,
            "seed": module.seed,
            "corpus": {"name": data.corpus.name, "origin": data.corpus.origin, "sha256": data.corpus.sha256},
            "val_fraction": data.val_fraction,
            "final": self._curve[-1],
            "curve": self._curve,
        }
