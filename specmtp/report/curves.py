"""Acceptance and loss over training steps as one picture: python -m specmtp.report.curves runs/main --output a.png"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from jsonargparse import auto_cli

from specmtp.errors import one_line_errors

COLOURS = {"draft": "tab:orange", "mtp": "tab:blue", "main": "black"}
PANELS = (
    ("acceptance rate α", "acceptance_rate"),
    ("tokens a target forward", "tokens_per_target_forward"),
)


def draw_curves(run: str, output: str = "curves.png") -> None:
    """Draws acceptance, tokens a target forward and validation losses of a run.

    Args:
        run: folder of the run, or its metrics.json.
        output: the picture, PNG or SVG by its ending.

    Raises:
        ValueError: there is no metrics.json, or no point in it.
    """
    file = Path(run) if Path(run).suffix == ".json" else Path(run) / "metrics.json"
    if not file.exists():
        raise ValueError(f"no metrics.json at {file}: name the folder of a run, such as runs/main")
    metrics: dict[str, Any] = json.loads(file.read_text("utf-8"))
    curve = metrics["curve"]
    if not curve:
        raise ValueError(f"{file} has no validation yet")
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for axis, (title, name) in zip(axes, PANELS, strict=False):
        for tag in sorted({t for point in curve for t in point if t.startswith("decode/") and t.endswith("/" + name)}):
            method, gamma = tag.split("/")[1].rsplit("_g", 1)
            label = f"{ {'mtp': 'MTP'}.get(method, method) } γ={gamma}"
            style = "-" if gamma == "1" else "--"
            axis.plot(*_points(curve, tag), style, marker="o", ms=3, color=COLOURS.get(method), label=label)
        axis.set(title=title, xlabel="optimiser steps")
    for tag in sorted({t for point in curve for t in point if t.startswith("val/loss_")}):
        name = tag.removeprefix("val/loss_")
        axes[2].plot(*_points(curve, tag), marker="o", ms=3, color=COLOURS.get(name.rstrip("0123456789")), label=name)
    axes[2].set(title="validation loss (nats a character)", xlabel="optimiser steps")
    for axis in axes:
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend()
    figure.savefig(output, dpi=130)
    plt.close(figure)
    print(output)


def _points(curve: list[dict[str, float]], tag: str) -> tuple[list[float], list[float]]:
    points = [(point["step"], point[tag]) for point in curve if tag in point]
    return [x for x, _ in points], [y for _, y in points]


if __name__ == "__main__":
    with one_line_errors():
        auto_cli(draw_curves)
