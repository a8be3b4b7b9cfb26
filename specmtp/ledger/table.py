"""The ledger on the screen: a table, a coloured sample, one line of verdict."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specmtp.decoding.trace import ACCEPTED, RESAMPLED, SAMPLED
from specmtp.ledger.rows import HEADERS, cells, number

STYLES = {ACCEPTED: "green", RESAMPLED: "bold red", SAMPLED: "default"}
ROOM = 1000
"""Characters in which any table finds room; a line too long for a terminal is better than a figure cut off."""
NAMES = {ACCEPTED: "accepted draft", RESAMPLED: "resampled after a rejection", SAMPLED: "drawn by the target"}


def show_table(console: Console, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Prints the rows, measured speed-ups green or red where their interval says faster or slower."""
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in HEADERS:
        table.add_column(header, justify="left" if header == HEADERS[0] else "right", no_wrap=True)
    for row in rows:
        *texts, measured = cells(row)
        table.add_row(*texts, Text(measured, style=_style(row["speedup"])))
    _print_whole(console, table)


def show_profile(console: Console, profile: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Prints where a compiled round's time goes, what its costs would allow, and the floor the machine sets."""
    label = {row["id"]: row["label"] for row in rows}
    ratios = "  ".join(f"v({v['tokens']}) {v['us']:.0f} µs = {v['ratio']:.2f}" for v in profile["verify"])
    console.print(f"verification of n tokens, v(n) / v(1): {ratios}\n", highlight=False)
    names = ("draft", "verify", "accept", "cache", "host", "unexplained")
    columns = ["row", "round µs", *names, "tokens / (v + γc)", "floor\nµs / token", "measured /\nfloor"]
    table = Table(title="µs of a round", title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "row" else "right", no_wrap=True)
    worth = {found["row"]: number(found["speedup"], 2) for found in profile["worth"]}
    roofline = {found["row"]: found for found in profile["roofline"]}
    for part in profile["parts"]:
        row, floor = part["row"], roofline[part["row"]]
        parts = [number(part[name], 1) for name in ("round_us", *names)]
        limits = number(floor["floor_us_per_token"], 1), number(floor["measured_over_floor"], 2)
        table.add_row(label[row], *parts, worth.get(row, "–"), *limits)
    _print_whole(console, table)
    console.print(
        f"this machine reads the target's weights at {profile['bandwidth_bytes_per_second'] / 1e9:.0f} GB/s and "
        f"multiplies matrices at {profile['matrix_flops_per_second'] / 1e9:.0f} GFLOP/s\n",
        highlight=False,
    )


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


def _print_whole(console: Console, table: Table) -> None:
    console.width = max(console.width, console.measure(table, options=console.options.update(width=ROOM)).maximum)
    console.print(table)


def _style(speedup: dict[str, Any] | None) -> str:
    if speedup is None:
        return "bold red"
    return {"faster": "green", "slower": "red"}.get(speedup["verdict"], "default")
