"""A small training run for tests."""

from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from specmtp.data.datamodule import TextDataModule
from specmtp.nn.config import GPTConfig
from specmtp.training.modules import GPTModule
from specmtp.training.optim import OptimConfig

WORDS = "the quick brown fox jumps over the lazy dog and runs away. "


def text_file(folder: Path, repeats: int = 60) -> Path:
    """Words in a shuffled order: learnable, not constant."""
    generator = torch.Generator().manual_seed(0)
    words = WORDS.split(" ")[:-1]
    order = torch.randint(len(words), (repeats * len(words),), generator=generator).tolist()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "text.txt"
    file.write_text(" ".join(words[i] for i in order))
    return file


def a_module(symbols: str, depth: int = 1, dropout: float = 0.1, **changes: Any) -> GPTModule:
    config = GPTConfig(
        num_layers=1, d_model=16, num_heads=2, num_kv_heads=1, attention_window=16, dropout=dropout,
        attention_dropout=dropout,
    )  # fmt: skip
    return GPTModule(symbols, config, OptimConfig(lr=1e-2, warmup_steps=2), mtp_depth=depth, seed=3, **changes)


def fit(
    folder: Path, callbacks: list[Callback], max_steps: int = 10, ckpt: Path | None = None, depth: int = 1,
    dropout: float = 0.1, **trainer: Any,
) -> GPTModule:  # fmt: skip
    """Trains the small model on the small text and returns it."""
    seed_everything(3)
    data = TextDataModule(path=str(text_file(folder)), block_size=16, batch_size=4, seed=3)
    module = a_module(data.symbols, depth, dropout)
    settings: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "max_epochs": -1, "val_check_interval": 5, "num_sanity_val_steps": 0,
        "check_val_every_n_epoch": None, "log_every_n_steps": 1, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False,
        "logger": TensorBoardLogger(folder / "runs", name="", version="run", default_hp_metric=False),
    }  # fmt: skip
    Trainer(max_steps=max_steps, callbacks=callbacks, **{**settings, **trainer}).fit(
        module, data, ckpt_path=ckpt, weights_only=True
    )
    return module


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every tag of the run."""
    events = EventAccumulator(str(folder / "runs" / "run"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def weights(module: GPTModule) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.net.parameters()]
