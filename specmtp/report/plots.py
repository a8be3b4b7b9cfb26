"""A ledger as pictures, PNG and SVG beside it: python -m specmtp.report.plots ledger.json"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")  # no window, and no display needed

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specmtp.analysis.waterfall import NAMES
from specmtp.decoding.rules import RULES, TOKEN
from specmtp.ledger.arms import method_name
from specmtp.report.batches import batch_rows
from specmtp.report.files import read_ledger
from specmtp.usage import command_line

Json = dict[str, Any]
COLOURS = {"draft": "tab:orange", "mtp": "tab:blue", "ngram": "tab:green", "plain": "black"}
MORE_COLOURS = ("tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan")
"""Of drafters with names of their own."""
MARKERS = {"token": "o", "block": "s", "exact_match": "^", "typical": "D"}
TERMS = {
    "theory": "tab:green", "positions": "tab:olive", "verify": "tab:blue", "drafting": "tab:orange",
    "accept": "tab:purple", "host": "tab:brown", "unexplained": "tab:red",
}  # fmt: skip
SHORT = {
    "theory": "theory",
    "positions": "acceptance by\nposition",
    "verify": "verifying\nγ+1",
    "drafting": "catching up,\nsampling drafts",
    "accept": "sampling,\naccepting",
    "host": "host",
    "unexplained": "unexplained",
    "measured": "measured",
}


def draw_plots(ledger: Json, stem: Path) -> list[Path]:
    """Draws every picture that the ledger has figures for, as ``<stem>_<name>.png`` and ``.svg``.

    Args:
        ledger: as bench.py writes it.
        stem: path without ending.
    """
    files = []
    for name, draw in PICTURES.items():
        figure = draw(ledger)
        if figure is None:
            continue
        for ending in ("png", "svg"):
            file = stem.with_name(f"{stem.name}_{name}.{ending}")
            figure.savefig(file, dpi=130, metadata={"Date": None} if ending == "svg" else None)
            files.append(file)
        plt.close(figure)
    return files


def speedup_by_gamma(ledger: Json) -> Figure | None:
    """Measured speed-ups with their intervals, and what Theorem 3.8 says, against gamma."""
    by_method = _rows_by_method(ledger)
    if not by_method:
        return None
    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    colours = _colours(by_method)
    for method, rows in by_method.items():
        gammas, colour = [row["gamma"] for row in rows], colours[method]
        values = [row["speedup"]["median"] for row in rows]
        axis.errorbar(gammas, values, _errors(rows), fmt="o-", capsize=3, color=colour, label=method_name(method))
        axis.plot(gammas, [row["theory_speedup"] for row in rows], ":", color=colour)
    axis.plot([], [], ":", color="grey", label="theory")
    axis.axhline(1, color="grey", lw=1)
    axis.set(xlabel="γ, drafts a round", ylabel="speed-up over plain decoding", title=_where(ledger, by_method))
    axis.set_xticks(sorted({row["gamma"] for rows in by_method.values() for row in rows}))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, **_beside(by_method))
    return figure


def _beside(by_method: Mapping[str, Any]) -> Json:
    """Where a legend goes: beside the picture where there is more in it than lines leave room for."""
    return {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if len(by_method) > 2 else {}


def acceptance_by_position(ledger: Json) -> Figure | None:
    """The chance that a draft stays, given that those before it did, at the largest gamma of every drafter."""
    by_method = _rows_by_method(ledger)
    if not by_method:
        return None
    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    colours = _colours(by_method)
    for method, rows in by_method.items():
        row = max(rows, key=lambda row: row["gamma"])
        places = [i for i, rate in enumerate(row["acceptance_at"]) if rate is not None]
        rates, colour = [row["acceptance_at"][i] for i in places], colours[method]
        name = f"{method_name(method)} γ={row['gamma']}, α {row['alpha']:.3f}"
        axis.plot([i + 1 for i in places], rates, "o-", color=colour, label=name)
        axis.axhline(row["alpha"], ls=":", color=colour)
    axis.plot([], [], ":", color="grey", label="α, as eq. (1) takes it")
    axis.set(xlabel="draft", ylabel="accepted / examined", ylim=(0, 1), title=_where(ledger, by_method))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, **_beside(by_method))
    return figure


def waterfall(ledger: Json) -> Figure | None:
    """From theory to the clock: what a token costs, of plain decoding and of every drafter's fastest row."""
    by_method = _rows_by_method(ledger, plain=True)
    shown = [max(rows, key=lambda row: row["speedup"]["median"]) for rows in by_method.values()]
    shown = [row for row in shown if row["waterfall"]]
    if not shown:
        return None
    figure, axes = plt.subplots(1, len(shown), figsize=(1.5 + 4.2 * len(shown), 4.6), layout="constrained", sharey=True)
    for axis, row in zip(axes if len(shown) > 1 else [axes], shown, strict=True):
        top, places = 0.0, list(NAMES)
        for place, name in enumerate(places):
            value = row["waterfall"][name]
            axis.barh(place, value, left=top, color=TERMS[name])
            axis.text(max(top, top + value), place, f" {value:+.1f}", va="center", fontsize=8)
            top += value
        measured = row["waterfall"]["measured"]
        axis.barh(len(places), measured, color="lightgrey")
        axis.text(measured, len(places), f" {measured:.1f}", va="center", fontsize=8)
        axis.set_title(row["label"], fontsize=10)
        axis.set_xlabel("µs a token")
        axis.set_xlim(0, 1.18 * max(measured, top))
        axis.set_yticks(range(len(places) + 1), [SHORT[n] for n in (*places, "measured")], fontsize=8)
    figure.axes[0].invert_yaxis()
    figure.suptitle(f"from theory to the clock; {ledger['provenance']['device_name']}", fontsize=11)
    return figure


def speedup_by_batch(ledger: Json) -> Figure | None:
    """Speed-up over plain decoding of the same batch."""
    by_arm = {arm: rows for arm, rows in batch_rows(ledger).items() if arm[0] != "plain"}
    if not by_arm or max(map(len, by_arm.values())) < 2:
        return None
    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    colours = _colours(method for method, _ in by_arm)
    for (method, gamma), by_batch in by_arm.items():
        rows = [by_batch[batch] for batch in sorted(by_batch)]
        shade = 0.35 + 0.65 * gamma / max(g for m, g in by_arm if m == method)
        axis.errorbar(
            [row["batch"] for row in rows], [row["speedup"]["median"] for row in rows], _errors(rows), fmt="o-",
            capsize=3, color=colours[method], alpha=shade, label=f"{method_name(method)} γ={gamma}",
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.axhline(1, color="grey", lw=1)
    axis.set(xlabel="batch", ylabel="speed-up over plain of the same batch", title=ledger["provenance"]["device_name"])
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure


def speed_and_distortion(ledger: Json) -> Figure | None:
    """Tokens a target forward against the total variation of the next two symbols, by accept rule; of ledgers with a
    lossy one.
    """
    checks = [c for c in ledger["checks"]["joint"] if c["method"] != "plain" and c["backend"] != "uncached"]
    if all(RULES[c.get("rule", TOKEN)].lossless for c in checks):
        return None
    rows = {(r["method"], r["gamma"], r["backend"], r["rule"]): r for r in ledger["rows"] if r["temperature"] > 0}
    by_row: dict[tuple[Any, ...], list[Json]] = {}
    for check in checks:
        by_row.setdefault((check["method"], check["gamma"], check["backend"], check["rule"]), []).append(check)
    colours, seen = _colours({key[0] for key in by_row}), set[str]()
    figure, axis = plt.subplots(figsize=(7.6, 4.8), layout="constrained")
    for (method, gamma, backend, rule), found in by_row.items():
        row = rows.get((method, gamma, backend, rule))
        if row is None or backend != ledger["rows"][0]["backend"] or gamma < 2:
            continue
        at = sum(c["tv"] for c in found) / len(found), row["tokens_per_target_forward"]
        name = f"{method_name(method)}, {RULES[rule].title}"
        filled, label = None if row["lossless"] else "none", None if name in seen else name
        axis.plot(*at, MARKERS[rule], color=colours[method], mfc=filled, ms=7, label=label)
        axis.annotate(f" {gamma}", at, fontsize=7)
        seen.add(name)
    if not seen:
        plt.close(figure)
        return None
    limit = sum(c["tv_limit"] for c in checks) / len(checks)
    axis.axvline(limit, color="grey", lw=1, ls="--")
    axis.text(limit, axis.get_ylim()[1], " what as many direct\n draws stay under", va="top", fontsize=8, color="grey")
    axis.set(xlabel="total variation of the next two symbols", ylabel="tokens a target forward")
    axis.set_title(f"speed and distortion; numbers are γ; {ledger['provenance']['device_name']}", fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


PICTURES: dict[str, Callable[[Json], Figure | None]] = {
    "speedup": speedup_by_gamma,
    "acceptance": acceptance_by_position,
    "waterfall": waterfall,
    "batch": speedup_by_batch,
    "distortion": speed_and_distortion,
}


def _rows_by_method(ledger: Json, plain: bool = False) -> dict[str, list[Json]]:
    """Rows of the smallest batch on the backend that decodes plainly fastest, by method and gamma."""
    found: dict[str, list[Json]] = {}
    for (method, _), by_batch in batch_rows(ledger).items():
        if plain or method != "plain":
            found.setdefault(method, []).append(by_batch[min(by_batch)])
    return found


def _colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour for every drafter."""
    others = sorted(set(methods) - set(COLOURS))
    return COLOURS | {name: MORE_COLOURS[i % len(MORE_COLOURS)] for i, name in enumerate(others)}


def _errors(rows: list[Json]) -> tuple[list[float], list[float]]:
    """How far the intervals reach below and above the medians; 0 where there is none."""
    found = [row["speedup"] for row in rows]
    low = [s["median"] - (s["median"] if s["low"] is None else s["low"]) for s in found]
    high = [(s["median"] if s["high"] is None else s["high"]) - s["median"] for s in found]
    return low, high


def _where(ledger: Json, by_method: dict[str, list[Json]]) -> str:
    where, row = ledger["provenance"], next(iter(by_method.values()))[0]
    return f"{where['device_name']}, {row['backend']}, batch {row['batch']}, temperature {row['temperature']:g}"


def plot_file(ledger: str) -> None:
    """Draws a ledger's pictures beside it and prints their paths.

    Args:
        ledger: a ledger.json.

    Raises:
        ValueError: there is no such file, or it is no ledger.
    """
    for file in draw_plots(read_ledger(ledger), Path(ledger).with_suffix("")):
        print(file)


if __name__ == "__main__":
    command_line(plot_file)
