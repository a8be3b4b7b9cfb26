"""The ladder: the rungs between a drafter that looks good and fewer target forwards, lowest first."""

RUNGS = {
    "1_top1_agreement": "top-1 agreement, teacher-forced",
    "2_alpha_exact_validation": "alpha_exact, validation text",
    "3_alpha_exact_own": "alpha_exact, the target's own text",
    "4_acceptance_rate": "sampled acceptance",
    "5_tokens_per_target_forward": "tokens / target forward",
}
"""Last part of a rung's tag, ladder/<drafter>/<rung>, and what people read."""
