"""What a draft model is best trained with: python -m specmtp.report.objectives results/distill_cpu RUNS"""

import statistics
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import auto_cli

from specmtp.errors import one_line_errors
from specmtp.ledger.files import write_json
from specmtp.ledger.provenance import processor
from specmtp.pretrained import common_steps, published_metrics

Json = dict[str, Any]
USUAL = "cross_entropy"
NAMES = {USUAL: "cross-entropy", "kl": "forward KL", "log_alpha": "−log α", "hybrid": "KL and −log α"}


def collect(folder: str, runs: list[str]) -> None:
    """Writes the last alpha_exact of draft models that differ by objective and seed alone, and their table.

    Args:
        folder: where objectives.json goes.
        runs: folders of runs that had a target.

    Raises:
        ValueError: a run has no metrics.json, had no target, or was trained for another number of steps than the first.
    """
    metrics = {Path(run): published_metrics(Path(run)) for run in runs}
    steps, found = common_steps(metrics.values()), [_run_json(*pair) for pair in metrics.items()]
    Path(folder).mkdir(parents=True, exist_ok=True)
    summary = {"device_name": processor(), "steps": steps, "runs": found}
    write_json(Path(folder) / "objectives.json", summary)
    print(objectives_table(summary))


def objectives_table(summary: Json) -> str:
    """Alpha_exact by objective and seed, and how much more it is than cross-entropy's of the same seed, as Markdown."""
    by_objective: dict[str, dict[int, Json]] = {}
    for run in summary["runs"]:
        by_objective.setdefault(run["objective"], {})[run["seed"]] = run
    seeds = sorted({run["seed"] for run in summary["runs"]})
    lines = [
        f"| alpha_exact after {summary['steps']} steps, seed | " + " | ".join(map(str, seeds)) + " | mean "
        "| over cross-entropy, least | cross-entropy of the text | seconds, least |",
        "|---|" + "---:|" * (len(seeds) + 4),
    ]
    usual = by_objective.get(USUAL, {})
    for objective in sorted(by_objective, key=list(NAMES).index):
        own = by_objective[objective]
        more = [own[seed]["alpha_exact"] - usual[seed]["alpha_exact"] for seed in own if seed in usual]
        cells = [f"{own[seed]['alpha_exact']:.3f}" if seed in own else "–" for seed in seeds]
        cells.append(f"{statistics.mean(run['alpha_exact'] for run in own.values()):.3f}")
        cells.append(f"{min(more):+.3f}" if more and objective != USUAL else "–")
        cells.append(f"{statistics.mean(run['val_loss'] for run in own.values()):.3f}")
        cells.append(f"{min(run['seconds'] for run in own.values()):.0f}")
        lines.append(f"| {NAMES[objective]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _run_json(run: Path, metrics: Json) -> Json:
    file = run / "hparams.yaml"
    settings = yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}
    if settings.get("objective") not in NAMES:
        raise ValueError(f"{run} was trained without a target: give it one with --model.target")
    return {
        "objective": settings["objective"],
        "seed": metrics["seed"],
        "alpha_exact": metrics["final"]["val/alpha_exact"],
        "val_loss": metrics["final"]["val/loss_main"],
        "seconds": metrics["seconds"],
    }


if __name__ == "__main__":
    with one_line_errors():
        auto_cli(collect)
