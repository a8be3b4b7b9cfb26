"""What weight and depth of MTP do to model and drafts: python -m specmtp.report.lambda_depth FOLDER RUNS"""

import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from specmtp.report.summary import summarise
from specmtp.usage import command_line

Json = dict[str, Any]
GAMMAS = (1, 2, 4)
COLOURS = {0.1: "tab:blue", 0.3: "tab:orange", 1.0: "tab:red"}
MARKERS = {1: "o", 2: "s", 4: "^"}


def collect(folder: str, runs: list[str]) -> None:
    """Writes the last figures of runs that differ by weight, depth and seed alone, their table and their picture.

    Args:
        folder: where lambda_depth.json and its picture go.
        runs: folders of runs.

    Raises:
        ValueError: as ``summarise``.
    """
    summary = summarise(Path(folder) / "lambda_depth.json", runs, _run_json, lambda_depth_table)
    draw(summary, Path(folder) / "lambda_depth.png")


def lambda_depth_table(summary: Json) -> str:
    """Main validation loss and tokens a forward by weight and depth, means over seeds, as Markdown."""
    lines = [
        "| λ | depth | seeds | main validation loss | "
        + " | ".join(f"tokens / forward, γ={gamma}" for gamma in GAMMAS)
        + " | MTP parameters | seconds, least |",
        "|---:|---:|---:|" + "---:|" * (len(GAMMAS) + 3),
    ]
    for (weight, depth), runs in _by_setting(summary).items():
        values = [run["val_loss"] for run in runs]
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        tokens = [
            "1" if depth == 0 else f"{statistics.mean(run['tokens'][str(gamma)] for run in runs):.2f}"
            for gamma in GAMMAS
        ]
        seconds = min(run["seconds"] for run in runs)
        lines.append(
            f"| {weight:g} | {depth} | {len(runs)} | {statistics.mean(values):.3f}{spread} | {' | '.join(tokens)} "
            f"| {runs[0]['mtp_parameters']:,} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def draw(summary: Json, file: Path) -> None:
    """Main validation loss against tokens a forward at the largest gamma, a point a weight and depth."""
    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for (weight, depth), runs in _by_setting(summary).items():
        losses = [run["val_loss"] for run in runs]
        if depth == 0:
            axis.axhline(statistics.mean(losses), color="black", ls="--", lw=1, label="λ = 0: no MTP")
            continue
        tokens = [run["tokens"][str(GAMMAS[-1])] for run in runs]
        look: Json = {"color": COLOURS.get(weight, "grey"), "marker": MARKERS.get(depth, "x")}
        axis.plot(tokens, losses, ls="", ms=4, alpha=0.45, **look)
        name = f"λ = {weight:g}, depth {depth}"
        axis.plot(statistics.mean(tokens), statistics.mean(losses), ls="", ms=9, label=name, **look)
    axis.set(xlabel=f"tokens a target forward, γ={GAMMAS[-1]}", ylabel="main validation loss")
    axis.set_title(f"{summary['steps']} steps; small: single seeds; {summary['device_name']}", fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _run_json(run: Path, metrics: Json) -> Json:
    final = metrics["final"]
    return {
        "seed": metrics["seed"],
        "mtp_weight": metrics["mtp_weight"],
        "mtp_depth": metrics["mtp_depth"],
        "mtp_parameters": metrics["parameters"]["mtp"],
        "seconds": metrics["seconds"],
        "val_loss": final["val/loss_main"],
        "tokens": {
            str(gamma): final[f"decode/mtp_g{gamma}/tokens_per_target_forward"] if metrics["mtp_depth"] else 1.0
            for gamma in GAMMAS
        },
    }


def _by_setting(summary: Json) -> dict[tuple[float, int], list[Json]]:
    found: dict[tuple[float, int], list[Json]] = {}
    for run in sorted(summary["runs"], key=lambda run: (run["mtp_weight"], run["mtp_depth"], run["seed"])):
        found.setdefault((run["mtp_weight"], run["mtp_depth"]), []).append(run)
    return found


if __name__ == "__main__":
    command_line(collect)
