"""One page of TensorBoard's custom scalars with the ladder: rung by rung for all drafters, and drafter by drafter."""

from lightning import Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from specmtp.analysis.ladder import RUNGS

PAGE = {
    "ladder, rung by rung": {name: ["Multiline", [f"ladder/.*/{rung}$"]] for rung, name in RUNGS.items()},
    "ladder, drafter by drafter": {name: ["Multiline", [f"ladder/{name}/[1-4]_"]] for name in ("draft", "mtp")},
}
"""Charts by category; tags by regular expression."""


def show_page(trainer: Trainer) -> None:
    """Tells TensorBoard of the page, on the first process."""
    if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
        trainer.logger.experiment.add_custom_scalars(PAGE)
