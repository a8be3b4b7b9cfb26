"""The ledger on the screen: a table, a coloured sample, one line of verdict."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specmtp.decoding.trace import ACCEPTED, RESAMPLED, SAMPLED
from specmtp.ledger.cells import HEADERS, PLAN_HEADERS, PROFILE_HEADERS, cells, plan_cells, profile_cells

STYLES = {ACCEPTED: "green", RESAMPLED: "bold red", SAMPLED: "default"}
ROOM = 1000
"""Characters in which any table finds room; a line too long for a terminal is better than a figure cut off."""
NAMES = {ACCEPTED: "accepted draft", RESAMPLED: "resampled after a rejection", SAMPLED: "drawn by the target"}


def show_table(console: Console, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Prints the rows, measured speed-ups green or red where their interval says faster or slower."""
    table = _table(title, HEADERS)
    for row in rows:
        *texts, measured = cells(row)
        table.add_row(*texts, Text(measured, style=_style(row["speedup"])))
    _print_whole(console, table)


def show_profile(console: Console, profile: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Prints where a compiled round's time goes, what its costs would allow, and the floor the machine sets."""
    ratios = "  ".join(f"v({v['tokens']}) {v['us']:.0f} µs = {v['ratio']:.2f}" for v in profile["verify"])
    console.print(f"verification of n tokens, v(n) / v(1): {ratios}\n", highlight=False)
    table = _table("", PROFILE_HEADERS)
    for texts in profile_cells(profile, rows):
        table.add_row(*texts)
    _print_whole(console, table)
    console.print(
        f"this machine reads the target's weights at {profile['bandwidth_bytes_per_second'] / 1e9:.0f} GB/s and "
        f"multiplies matrices at {profile['matrix_flops_per_second'] / 1e9:.0f} GFLOP/s\n",
        highlight=False,
    )


def show_plan(console: Console, planner: Sequence[dict[str, Any]]) -> None:
    """Prints what the planner says of every drafter, beside what was measured where it was."""
    table = _table("", PLAN_HEADERS)
    for entry in planner:
        table.add_row(*plan_cells(entry))
    if planner:
        _print_whole(console, table)


def show_sample(console: Console, prompt: str, sample: dict[str, Any]) -> None:
    """Prints prompt and sample with every token in the colour of its origin."""
    legend = Text(f"sample of {sample['label']}: ")
    legend.append(" prompt ", style="dim")
    for mark, style in STYLES.items():
        legend.append(f" {NAMES[mark]} ", style=style)
    console.print(legend)
    shown = Text(prompt, style="dim")
    for symbol, mark in zip(sample["text"], sample["marks"], strict=True):
        shown.append(symbol, style=STYLES[mark])
    console.print(shown)


def _table(title: str, headers: Sequence[str]) -> Table:
    """An empty table, its first column of labels, the others of numbers."""
    table = Table(title=title or None, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i else "left", no_wrap=True)
    return table


def _print_whole(console: Console, table: Table) -> None:
    console.width = max(console.width, console.measure(table, options=console.options.update(width=ROOM)).maximum)
    console.print(table)


def _style(speedup: dict[str, Any] | None) -> str:
    if speedup is None:
        return "bold red"
    return {"faster": "green", "slower": "red"}.get(speedup["verdict"], "default")
