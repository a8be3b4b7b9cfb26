"""One page of TensorBoard's custom scalars with the ladder: rung by rung for all drafters, and drafter by drafter."""

from lightning import Trainer
from lightning.pytorch.loggers import TensorBoardLogger

RUNGS = {
    "1_top1_agreement": "top-1 agreement with the target, teacher-forced",
    "2_alpha_exact_validation": "alpha_exact on validation text",
    "3_alpha_exact_own": "alpha_exact on the target's own text",
    "4_acceptance_rate": "sampled acceptance rate",
    "5_tokens_per_target_forward": "tokens per target forward",
}
"""From a drafter that looks good to fewer target forwards, lowest first, with what people read."""
PAGE = {
    "ladder, rung by rung": {name: ["Multiline", [f"ladder/.*/{rung}$"]] for rung, name in RUNGS.items()},
    "ladder, drafter by drafter": {name: ["Multiline", [f"ladder/{name}/[1-4]_"]] for name in ("draft", "mtp")},
}
"""Charts by category; tags by regular expression."""


def show_page(trainer: Trainer) -> None:
    """Tells TensorBoard of the page, on the first process."""
    if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
        trainer.logger.experiment.add_custom_scalars(PAGE)
