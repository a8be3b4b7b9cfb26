"""Training steps as pictures: python -m specmtp.report.curves draw_curves runs/main; draw_ladder for the ladder."""

import re
from pathlib import Path

import matplotlib.pyplot as plt

from specmtp.analysis.ladder import RUNGS
from specmtp.checkpoint import read_metrics
from specmtp.decoding.rules import RULES
from specmtp.ledger.arms import method_name
from specmtp.usage import command_line

COLOURS = {"draft": "tab:orange", "mtp": "tab:blue", "ngram": "tab:green", "main": "black"}
STYLES = ("-", "--", ":", "-.")
"""By gamma, from the smallest."""


def draw_curves(run: str, output: str = "curves.png") -> None:
    """Draws acceptance, tokens a target forward and validation losses of a run.

    Args:
        run: folder of the run, or its metrics.json.
        output: the picture, PNG or SVG by its ending.

    Raises:
        ValueError: there is no metrics.json, or no point in it.
    """
    curve = _curve(run)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    tags = {tag for point in curve for tag in point}
    arms = sorted({tag.split("/")[1] for tag in tags if tag.startswith("decode/")}, key=_parts)
    for arm in arms:
        method, gamma, rule = _parts(arm)
        own = [other for other in arms if _parts(other)[0] == method]
        name = f"{method_name(method)} γ={gamma}" + (f", {RULES[rule].title}" if rule else "")
        look = {"color": COLOURS.get(method), "label": name}
        line = STYLES[own.index(arm) % len(STYLES)]
        axes[0].plot(*_points(curve, f"decode/{arm}/alpha_minpq"), line, **look)
        axes[0].plot(*_points(curve, f"decode/{arm}/acceptance_rate"), ".", ms=5, color=look["color"])
        axes[1].plot(*_points(curve, f"decode/{arm}/tokens_per_target_forward"), line, marker=".", ms=5, **look)
    for tag in sorted(tag for tag in tags if re.fullmatch(r"val/loss_(main|mtp\d+)", tag)):
        name = tag.removeprefix("val/loss_")
        colour = COLOURS["mtp" if name.startswith("mtp") else name]
        axes[2].plot(*_points(curve, tag), marker=".", ms=5, color=colour, label=name)
    axes[0].set_title("acceptance: Σ min(p,q), dots: sampled α")
    axes[1].set_title("tokens per target forward")
    axes[2].set_title("validation loss, nats per character")
    for axis in axes:
        axis.set_xlabel("optimiser steps")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
    figure.savefig(output, dpi=130)
    plt.close(figure)
    print(output)


def draw_ladder(run: str, output: str = "ladder.png") -> None:
    """Draws the ladder of every drafter: from a drafter that looks good to fewer target forwards, at the same steps.

    Args:
        run: folder of the run, or its metrics.json.
        output: the picture, PNG or SVG by its ending.

    Raises:
        ValueError: there is no metrics.json, or no rung in it.
    """
    curve = _curve(run)
    drafters = sorted({tag.split("/")[1] for point in curve for tag in point if tag.startswith("ladder/")})
    if not drafters:
        raise ValueError(f"{run} has no ladder: train with a callback that decodes (callbacks.MTPAcceptance)")
    figure, axes = plt.subplots(1, len(RUNGS), figsize=(3.1 * len(RUNGS), 3.4), layout="constrained")
    for axis, (rung, name) in zip(axes, RUNGS.items(), strict=True):
        for drafter in drafters:
            label = method_name(drafter)
            axis.plot(*_points(curve, f"ladder/{drafter}/{rung}"), marker=".", color=COLOURS.get(drafter), label=label)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("optimiser steps")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(output, dpi=130)
    plt.close(figure)
    print(output)


def _curve(run: str) -> list[dict[str, float]]:
    file = Path(run) if Path(run).suffix == ".json" else Path(run) / "metrics.json"
    if not file.exists():
        raise ValueError(f"no metrics.json at {file}: name the folder of a run, such as runs/main")
    curve = read_metrics(file).get("curve")
    if not isinstance(curve, list) or not all(isinstance(point, dict) and "step" in point for point in curve):
        raise ValueError(f"{file} is not what a run writes: look at its curve")
    if not curve:
        raise ValueError(f"{file} has no validation yet")
    return curve


def _parts(arm: str) -> tuple[str, int, str]:
    """Drafter, gamma and accept rule of curves; the usual rule has no name.

    >>> _parts("mtp_g4"), _parts("draft_g2_exact_match")
    (('mtp', 4, ''), ('draft', 2, 'exact_match'))
    """
    found = re.fullmatch(r"(.+)_g(\d+)_?(.*)", arm)
    assert found is not None
    return found[1], int(found[2]), found[3]


def _points(curve: list[dict[str, float]], tag: str) -> tuple[list[float], list[float]]:
    points = [(point["step"], point[tag]) for point in curve if tag in point]
    return [x for x, _ in points], [y for _, y in points]


if __name__ == "__main__":
    command_line(draw_curves, draw_ladder)
