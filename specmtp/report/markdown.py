"""A ledger as Markdown tables, for a README: python -m specmtp.report.markdown ledger.json --table figures"""

from collections.abc import Callable
from typing import Any, Literal

from specmtp.ledger.arms import method_name
from specmtp.ledger.cells import HEADERS, and_others, cells
from specmtp.report.batches import batch_table
from specmtp.report.costs import profile_table
from specmtp.report.drafters import drafters_table, rules_table
from specmtp.report.files import read_ledger
from specmtp.report.reference import comparison_table, figures_table
from specmtp.usage import command_line


def markdown_table(ledger: dict[str, Any]) -> str:
    """The machine's line and the rows of the fastest backend; forwards are of one generation on average."""
    where = ledger["provenance"]
    by_id = {row["id"]: row for row in ledger["rows"]}
    fastest = by_id[ledger["rows"][0]["speedup"]["baseline"]]
    alike = ("backend", "batch", "temperature", "rule")
    rows = [row for row in ledger["rows"] if all(row.get(k) == fastest.get(k) for k in alike)]
    lines = [
        f"{where['device_name']} ({where['device']}, {where['dtype']}, {where['threads']} thread(s), "
        f"{rows[0]['backend']}, torch {where['torch']}): {rows[0]['tokens']} tokens after `{where['prompt']!r}`"
        f"{and_others(len(where['prompts']) - 1)}, temperature {rows[0]['temperature']:g}, batch 1, one training seed, "
        f"medians of {where['repeats']} interleaved repeats a prompt, 95 % intervals; a speed-up is the median of "
        "paired ratios, not the ratio of two medians.",
        "",
        "| " + " | ".join(" ".join(h.split()) for h in HEADERS) + " |",
        "|---|" + "---:|" * (len(HEADERS) - 1),
    ]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)])


def temperature_table(ledger: dict[str, Any]) -> str:
    """alpha_exact against temperature, a line a drafter and text."""
    found = ledger["acceptance_by_temperature"]
    temperatures = found[0]["temperature"] if found else []
    lines = [
        "| alpha_exact at temperature | " + " | ".join(f"{t:g}" for t in temperatures) + " |",
        "|---|" + "---:|" * len(temperatures),
    ]
    for entry in found:
        for text, name in (("validation", "validation text"), ("own", "the target's own text")):
            if entry[text] is not None:
                label = f"{method_name(entry['method'])}, {name}"
                lines.append(f"| {label} | " + " | ".join(f"{alpha:.3f}" for alpha in entry[text]) + " |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "rows": markdown_table,
    "figures": figures_table,
    "comparison": comparison_table,
    "temperature": temperature_table,
    "profile": profile_table,
    "batches": batch_table,
    "drafters": drafters_table,
    "rules": rules_table,
}
Table = Literal["rows", "figures", "comparison", "temperature", "profile", "batches", "drafters", "rules"]


def print_table(ledger: str, table: Table = "rows") -> None:
    """Prints a Markdown table of a ledger.

    Args:
        ledger: a ledger.json.
        table: the rows; the figures of the reference experiment to reproduce; its rows beside these; acceptance
            against temperature; where the time of a round goes; speed-up by batch; drafters and accept rules side by
            side.

    Raises:
        ValueError: there is no such file, or it is no ledger.
    """
    print(TABLES[table](read_ledger(ledger)))


if __name__ == "__main__":
    command_line(print_table)
