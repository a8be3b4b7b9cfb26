"""How far acceptance moves between training seeds: python -m specmtp.report.seeds results/seeds_cpu RUNS"""

import statistics
from pathlib import Path
from typing import Any

from specmtp.report.summary import summarise
from specmtp.usage import command_line

Json = dict[str, Any]
FIGURES = {
    "ladder/draft/2_alpha_exact_validation": "draft, alpha_exact on validation text",
    "ladder/draft/3_alpha_exact_own": "draft, on the target's own text",
    "decode/draft_g4/tokens_per_target_forward": "draft γ=4, tokens / forward",
    "ladder/mtp/2_alpha_exact_validation": "MTP, alpha_exact on validation text",
    "ladder/mtp/3_alpha_exact_own": "MTP, on the target's own text",
    "decode/mtp_g2/tokens_per_target_forward": "MTP γ=2, tokens / forward",
    "val/loss_main": "target's validation loss",
}
"""What is compared between seeds: tags of a target's run whose callbacks decode, with what people read."""


def collect(folder: str, runs: list[str]) -> None:
    """Writes the last figures of targets that were trained alike but for the seed, each beside a draft of its own.

    Args:
        folder: where seeds.json goes.
        runs: folders of the targets' runs.

    Raises:
        ValueError: as ``summarise``.
    """
    summarise(Path(folder) / "seeds.json", runs, _run_json, seeds_table)


def seeds_table(summary: Json) -> str:
    """Figures by seed, their mean and their standard deviation, as Markdown.

    Raises:
        ValueError: there is but one seed.
    """
    seeds = summary["runs"]
    if len({s["seed"] for s in seeds}) < 2:
        raise ValueError("runs of at least two seeds are wanted")
    lines = [
        f"| after {summary['steps']} steps, seed | " + " | ".join(str(s["seed"]) for s in seeds) + " | mean | ± |",
        "|---|" + "---:|" * (len(seeds) + 2),
    ]
    for tag, name in FIGURES.items():
        values = [s[tag] for s in seeds if s[tag] is not None]
        if len(values) == len(seeds) > 1:
            cells = [f"{v:.3f}" for v in (*values, statistics.mean(values), statistics.stdev(values))]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _run_json(run: Path, metrics: Json) -> Json:
    return {"seed": metrics["seed"], **{tag: metrics["final"].get(tag) for tag in FIGURES}}


if __name__ == "__main__":
    command_line(collect)
