"""What a draft model is best trained with: python -m specmtp.report.objectives results/distill_cpu RUNS"""

import statistics
from pathlib import Path
from typing import Any

import yaml

from specmtp.report.summary import summarise
from specmtp.usage import command_line

Json = dict[str, Any]
USUAL = "cross_entropy"
NAMES = {USUAL: "cross-entropy", "kl": "forward KL", "log_alpha": "−log α", "hybrid": "KL and −log α"}


def collect(folder: str, runs: list[str]) -> None:
    """Writes the last alpha_exact of draft models that differ by objective, text and seed alone, and their table.

    Args:
        folder: where objectives.json goes.
        runs: folders of runs that had a target.

    Raises:
        ValueError: as ``summarise``, or a run had no target.
    """
    summarise(Path(folder) / "objectives.json", runs, _run_json, objectives_table)


def objectives_table(summary: Json) -> str:
    """Alpha_exact by objective, share of the target's own text and seed, and how much more it is than cross-entropy's
    of the same seed, as Markdown.
    """
    found: dict[tuple[str, float], dict[int, Json]] = {}
    for run in summary["runs"]:
        found.setdefault((run["objective"], run["own_text"]), {})[run["seed"]] = run
    seeds = sorted({run["seed"] for run in summary["runs"]})
    lines = [
        f"| alpha_exact after {summary['steps']} steps, seed | " + " | ".join(map(str, seeds)) + " | mean "
        "| over cross-entropy, least | cross-entropy of the text | seconds, least |",
        "|---|" + "---:|" * (len(seeds) + 4),
    ]
    usual = found.get((USUAL, 0), {})
    for objective, own_text in sorted(found, key=lambda key: (list(NAMES).index(key[0]), key[1])):
        own = found[objective, own_text]
        more = [own[seed]["alpha_exact"] - usual[seed]["alpha_exact"] for seed in own if seed in usual]
        cells = [f"{own[seed]['alpha_exact']:.3f}" if seed in own else "–" for seed in seeds]
        cells.append(f"{statistics.mean(run['alpha_exact'] for run in own.values()):.3f}")
        cells.append(f"{min(more):+.3f}" if more and own is not usual else "–")
        cells.append(f"{statistics.mean(run['val_loss'] for run in own.values()):.3f}")
        cells.append(f"{min(run['seconds'] for run in own.values()):.0f}")
        share = f", {own_text:.0%} own text" if own_text else ""
        lines.append(f"| {NAMES[objective]}{share} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _run_json(run: Path, metrics: Json) -> Json:
    file = run / "hparams.yaml"
    settings = yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}
    if settings.get("objective") not in NAMES:
        raise ValueError(f"{run} was trained without a target: give it one with --model.target")
    return {
        "objective": settings["objective"],
        "own_text": settings["own_text"],
        "seed": metrics["seed"],
        "alpha_exact": metrics["final"]["val/alpha_exact"],
        "val_loss": metrics["final"]["val/loss_main"],
        "seconds": metrics["seconds"],
    }


if __name__ == "__main__":
    command_line(collect)
