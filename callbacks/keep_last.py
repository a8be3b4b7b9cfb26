"""A resumable checkpoint at every end of a run, the sudden ones included."""

import signal
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.rank_zero import rank_zero_info


class RunCheckpoint(ModelCheckpoint):
    """Lightning's checkpoint callback, which knows its files also after the run's folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        folder = Path(self.dirpath or "")

        def here(file: str) -> str:
            return str(folder / Path(file).name) if file else ""

        if not Path(here(state_dict["best_model_path"])).is_file():
            return  # another run's checkpoint: nothing of this folder's is known yet
        moved = {key: here(state_dict[key]) for key in ("best_model_path", "kth_best_model_path", "last_model_path")}
        best_k = {here(file): value for file, value in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **moved, "best_k_models": best_k, "dirpath": self.dirpath})


class KeepLast(Callback):
    """Saves ``last.ckpt`` at the end of training, and at Ctrl-C or SIGTERM once the step in progress is done.

    The optimiser step is finished first, and the validation that is due after it, so the checkpoint is one that an
    uninterrupted run passes through and no point of a curve is missed. A second signal is obeyed at once.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "last.ckpt"
        self.signal: int | None = None
        self._saved_step = -1
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        batches = trainer.global_step * trainer.accumulate_grad_batches
        step_is_done = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if self.signal and step_is_done and batches % int(trainer.val_check_batch or 1):
            trainer.save_checkpoint(self.file, weights_only=False)
            self._stop(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.signal and self._saved_step == trainer.global_step:
            self._stop(trainer)  # a validation was due before the stop, and has saved

    def _stop(self, trainer: Trainer) -> None:
        rank_zero_info(f"\nstopped after step {trainer.global_step}; continue with --ckpt_path {self.file}")
        raise KeyboardInterrupt

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._saved_step = trainer.global_step

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()
        if self._saved_step < trainer.global_step:
            trainer.save_checkpoint(self.file, weights_only=False)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore()
