"""A ledger beside the reference experiment: figures to reproduce, and what the cache is worth.

The reference experiment ran on one RTX 4090 with PyTorch 2.4.1, one seed, every row timed once, without KV cache.
"""

from dataclasses import dataclass

from specmtp.analysis.statistics import paired_ratio
from specmtp.ledger.cells import Json, interval_text, number, speedup_text

REFERENCE_ROWS: dict[str, tuple[float | None, float | None, float | None]] = {
    "plain": (1.000, None, 1.0),
    "draft_g1": (1.667, 0.6667, 1.158),
    "draft_g2": (2.299, 0.7451, 1.238),
    "draft_g3": (2.353, 0.6699, 1.076),
    "draft_g4": (2.740, 0.7167, 1.041),
    "draft_g6": (3.093, 0.7173, 0.944),
    "draft_g8": (2.956, 0.6757, 0.747),
    "mtp_g1": (1.893, 0.8987, 1.270),
}
"""Tokens a target forward, α (None where nothing is drafted) and measured speed-up of the reference, by row."""
DRAFT_ALPHA, MTP_ALPHA = (0.62, 0.78), (0.80, 0.95)
"""Where α must lie: of the draft at every gamma, of MTP at gamma 1."""


@dataclass(frozen=True)
class Figure:
    """One figure to reproduce."""

    name: str
    reference: str
    here: str
    required: str
    holds: bool


def figures(ledger: Json) -> list[Figure]:
    """Every figure of the reference experiment that must be reproduced, with what a ledger says of it.

    Raises:
        ValueError: the ledger lacks a model or an arm of the reference experiment.
    """
    models, checks = ledger["models"], ledger["checks"]
    rows = {row["id"]: row for row in ledger["rows"]}
    missing = [name for name in ("target", "mtp", "draft", "control") if not models[name]]
    missing += [name for name in REFERENCE_ROWS if name not in rows]
    if missing:
        raise ValueError(f"this ledger has no {', '.join(missing)}: it is not of the reference experiment's models")

    def loss(name: str, model: str, reference: float, most: float) -> Figure:
        value = models[model]["val_loss"]
        label = f"{name} validation loss, {models[model]['step']:,} steps"
        return Figure(label, f"{reference:.4f}", f"{value:.4f}", f"≤ {most}", value <= most)

    found = [
        loss("target (with MTP loss)", "target", 1.5276, 1.55),
        loss("control (without)", "control", 1.5357, 1.55),
        loss("MTP module", "mtp", 1.5332, 1.56),
        loss("draft", "draft", 1.8862, 1.92),
    ]
    causal = checks["causal_max_abs_diff"]
    found.append(Figure("logits, alone or with 8 more characters", "0.0", f"{causal:.1e}", "≤ 1e-5", causal <= 1e-5))
    greedy = [c for c in checks["greedy"] if c["backend"] == "eager"]
    for tokens, name in ((48, "inside the window"), (600, "far past it")):
        same = [c for c in greedy if c["tokens"] == tokens]
        identical, prompts = sum(c["identical"] for c in same), sum(c["prompts"] for c in same)
        reference = "80 of 80 (4 arms)" if tokens == 48 else "–"
        here = f"{identical} of {prompts} ({len(same)} arms)"
        label = f"greedy texts identical to plain, {tokens} tokens, {name}"
        found.append(Figure(label, reference, here, "all", identical == prompts))
    law = next(c for c in checks["sampling"] if (c["method"], c["gamma"], c["backend"]) == ("draft", 1, "eager"))
    found.append(
        Figure(
            f"total variation to p of {law['draws']:,} speculative samples (of q itself)",
            "0.0005 (0.053)",
            f"{law['tv']:.4f} ({law['tv_draft']:.3f})",
            f"≤ {law['tv_limit']:.4f}, the noise of p's own samples",
            law["tv"] <= law["tv_limit"],
        )
    )
    rate = law["accepted"] / law["draws"]
    noise = 5 * (law["beta"] * (1 - law["beta"]) / law["draws"]) ** 0.5
    found.append(
        Figure(
            "acceptance there (Σ min(p, q))",
            "0.9472 (0.9470)",
            f"{rate:.4f} ({law['beta']:.4f})",
            f"± {noise:.4f}",
            abs(rate - law["beta"]) <= noise,
        )
    )
    drafts = [name for name in REFERENCE_ROWS if name.startswith("draft")]
    for name, arms, (low, high), reference in (
        ("draft α, lowest to highest over γ", drafts, DRAFT_ALPHA, "0.667–0.745"),
        ("MTP α, γ=1", ["mtp_g1"], MTP_ALPHA, "0.899"),
    ):
        alphas = [rows[arm]["alpha"] for arm in arms]
        here = "–".join(f"{a:.3f}" for a in sorted({min(alphas), max(alphas)}))
        found.append(Figure(name, reference, here, f"{low:.2f} to {high:.2f}", all(low <= a <= high for a in alphas)))
    return found


def figures_table(ledger: Json) -> str:
    """The figures as Markdown; one that does not hold says so."""
    lines = ["| figure | reference | here | wanted |", "|---|---:|---:|---:|"]
    for f in figures(ledger):
        lines.append(f"| {f.name} | {f.reference} | {f.here} | {f.required}{'' if f.holds else ' **missed**'} |")
    return "\n".join(lines)


def comparison_table(ledger: Json) -> str:
    """Every arm beside the reference's row, and beside its twin that decodes as the reference does, as Markdown.

    The arm is the compiled one where there is one; its speed-up is over the fastest plain arm, the twin's over the
    plain twin.

    Raises:
        ValueError: there are no such twins.
    """
    rows = {row["id"]: row for row in ledger["rows"]}
    if not any(name.endswith("_uncached") for name in rows):
        raise ValueError("the ledger has no rows without a cache: python bench.py --arms draft,mtp,uncached adds them")
    lines = [
        "| method | tokens / forward, reference | here | α, reference | here | speed-up, reference | here, no cache | "
        "here | ms / token, no cache | here | cache and graph are worth |",
        "|---|" + "---:|" * 10,
    ]
    for name, eager in rows.items():
        twin = rows.get(f"{name}_uncached")
        if twin is None:
            continue
        row = rows.get(f"{name}_compile", eager)
        tokens, alpha, speedup = REFERENCE_ROWS.get(name, (None, None, None))
        worth = paired_ratio(twin["seconds"]["samples"], row["seconds"]["samples"])
        cells = [
            row["label"],
            number(tokens, 3),
            number(row["tokens_per_target_forward"], 3),
            number(alpha, 3),
            number(row["alpha"], 3),
            number(speedup, 2),
            speedup_text(twin),
            speedup_text(row),
            number(twin["ms_per_token"], 3),
            number(row["ms_per_token"], 3),
            interval_text(worth.value, worth.low, worth.high),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
