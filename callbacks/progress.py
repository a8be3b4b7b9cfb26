"""The progress bar: steps done of all steps, time left, speed, the two losses to watch."""

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.callbacks.progress.rich_progress import RichProgressBarTheme


class StepProgress(RichProgressBar):
    """Lightning's rich bar, with the training as one line and without its own identifiers."""

    def __init__(self) -> None:
        super().__init__(leave=True, theme=RichProgressBarTheme(metrics_format=".3f"))

    @property
    def total_train_batches(self) -> int:
        """Batches of the whole training, also in a resumed run: the bar starts where the run stopped."""
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def _get_train_description(self, current_epoch: int) -> str:
        return "training"

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        shown = super().get_metrics(trainer, pl_module)
        return {name.split("/")[0]: shown[name] for name in ("train/loss", "val/loss_main") if name in shown}
