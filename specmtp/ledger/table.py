"""The ledger on the screen: a table, a coloured sample, one line of verdict."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specmtp.decoding.trace import ACCEPTED, RESAMPLED, SAMPLED

STYLES = {ACCEPTED: "green", RESAMPLED: "bold red", SAMPLED: "default"}
HEADERS = (
    "method", "target\nforwards", "draft\nforwards", "tokens /\nforward", "α", "Σ min\n(p,q)", "eq. (1)\ntokens", "c",
    "theory\nspeed-up", "ms /\ntoken", "measured\nspeed-up",
)  # fmt: skip
MIN_WIDTH = 118
"""Columns the table needs."""
NAMES = {ACCEPTED: "accepted draft", RESAMPLED: "resampled after a rejection", SAMPLED: "drawn by the target"}


def show_table(console: Console, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Prints the rows; forwards are of one generation on average."""
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in HEADERS:
        table.add_column(header, justify="left" if header == HEADERS[0] else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["label"],
            _number(row["target_forwards"] / row["generations"], 0),
            _number(row["draft_forwards"] / row["generations"], 0),
            _number(row["tokens_per_target_forward"], 3),
            _number(row["alpha"], 3),
            _number(row["alpha_minpq"], 3),
            _number(row["expected_tokens"], 3),
            _number(row["c"], 2),
            _number(row["theory_speedup"], 2),
            _number(row["ms_per_token"], 3),
            _speedup(row),
        )
    console.print(table)


def show_sample(console: Console, text: str, marks: Sequence[str], label: str) -> None:
    """Prints a sample with every token in the colour of its origin."""
    legend = Text(f"sample of {label}: ")
    for mark, style in STYLES.items():
        legend.append(f" {NAMES[mark]} ", style=style)
    console.print(legend)
    shown = Text()
    for symbol, mark in zip(text, marks, strict=True):
        shown.append(symbol, style=STYLES[mark])
    console.print(shown)


def _speedup(row: dict[str, Any]) -> Text:
    speedup = row["speedup"]
    if speedup is None:
        return Text("not exact", style="bold red")
    if row["method"] == "plain":
        return Text("1")
    style = {"faster": "green", "slower": "red"}.get(speedup["verdict"], "default")
    if speedup["low"] is None:
        return Text(f"{speedup['median']:.2f} (single run)")
    return Text(f"{speedup['median']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]", style=style)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
