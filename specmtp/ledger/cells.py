"""The ledger in words: its rows as the cells of tables, and its verdict."""

import math
from collections.abc import Sequence

from specmtp.ledger.arms import PLAIN, Arm
from specmtp.ledger.parts import PARTS
from specmtp.ledger.profile import is_profiled
from specmtp.ledger.rows import Json

HEADERS = (
    "method", "target\nforwards", "draft\nforwards", "tokens /\nforward", "α", "Σ min\n(p,q)", "eq. (1)\ntokens", "c",
    "theory\nspeed-up", "ms /\ntoken", "measured\nspeed-up",
)  # fmt: skip
"""The table's columns, as ``cells`` gives them."""


def cells(row: Json) -> list[str]:
    """A row as the table's texts; forwards are of one generation on average, what is missing is a dash."""
    return [
        row["label"],
        number(row["target_forwards"] / row["generations"], 0),
        number(row["draft_forwards"] / row["generations"], 0),
        number(row["tokens_per_target_forward"], 3),
        number(row["alpha"], 3),
        number(row["alpha_minpq"], 3),
        number(row["expected_tokens"], 3),
        number(row["c"], 2),
        number(row["theory_speedup"], 2),
        number(row["ms_per_token"], 3),
        speedup_text(row),
    ]


def baselines_text(rows: Sequence[Json]) -> str:
    """What the speed-ups of these rows are over: labels of plain arms."""
    label = {row["id"]: row["label"] for row in rows}
    return "; ".join(dict.fromkeys(label[row["speedup"]["baseline"]] for row in rows if row["speedup"]))


def speedup_text(row: Json) -> str:
    """A row's measured speed-up with its interval."""
    speedup = row["speedup"]
    if speedup is None:
        return "not exact"
    if row["id"] == speedup["baseline"]:
        return "1"
    if speedup["low"] is None:
        return f"{speedup['median']:.2f} (single run)"
    return interval_text(speedup["median"], speedup["low"], speedup["high"])


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """A value with its interval, where it has one."""
    return f"{value:.2f}" if low is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


PROFILE_HEADERS = (
    "µs of a round", "measured", *PARTS, "unexplained", "costs would\nallow", "floor,\nµs / token", "×\nfloor",
)  # fmt: skip
"""The columns of a profile's table, as ``profile_cells`` gives them."""


def profile_cells(profile: Json, rows: Sequence[Json]) -> list[list[str]]:
    """Where the time of every profiled round goes, what its costs alone would allow, and the machine's floor."""
    worth = {found["row"]: number(found["speedup"], 2) for found in profile["worth"]}
    roofline = {found["row"]: found for found in profile["roofline"]}
    found = []
    for row in rows:
        if row["parts_us"] and is_profiled(row):
            parts, floor = row["parts_us"], roofline[row["id"]]
            measured = 1000 * row["ms_per_token"] * row["tokens"] * row["generations"] / row["rounds"]
            values = [measured, *(parts[name] for name in PARTS), measured - sum(parts.values())]
            limits = [number(floor["floor_us_per_token"], 1), number(floor["measured_over_floor"], 1)]
            found.append([row["label"], *(number(v, 1) for v in values), worth.get(row["id"], "–"), *limits])
    return found


def and_others(number: int) -> str:
    """What else was decoded after, behind the first prompt's name."""
    return f" and {number} piece{'s' * (number > 1)} of the text" if number else ""


PLAN_HEADERS = (
    "planner", "batch", "γ* predicted", "speed-up predicted,\nover plain of its backend", "γ that\nmeasured best",
    "regret",
)  # fmt: skip
"""The columns of the planner's table, as ``plan_cells`` gives them. Speed-ups are over plain of the same backend."""


def plan_cells(entry: Json) -> list[str]:
    """A plan as the table's texts; γ* is "do not speculate" where plain decoding is predicted to be fastest."""
    best = max(entry["predicted"], key=lambda p: p["speedup"])
    measured = "–" if entry["regret"] is None else str(entry["measured_best_gamma"] or "plain")
    return [
        Arm(entry["method"], best["gamma"], entry["backend"]).drafter_label,
        str(entry["batch"]),
        str(entry["gamma"] or "do not speculate"),
        " ".join(f"{p['gamma']}: {p['speedup']:.2f}" for p in entry["predicted"]),
        measured,
        "–" if entry["regret"] is None else f"{100 * entry['regret']:.1f} %",
    ]


def number(value: float | None, digits: int) -> str:
    """A number as the tables show it; a dash where it is missing."""
    return "–" if value is None else f"{value:.{digits}f}"


MOST_NAMED = 6
"""Arms that a verdict names as slower, at most; of others it gives the number."""
CHANCE = 0.05
"""That a verdict calls any arm faster or slower that is not."""


def tried(rows: Sequence[Json]) -> list[Json]:
    """Rows that a verdict is about: lossless speculative arms with a cache, sampled as the run samples."""
    shown = [row for row in rows if row["lossless"] and not row["id"].endswith(("_uncached", "_greedy"))]
    return [row for row in shown if row["speedup"] and row["method"] != PLAIN]


def fastest_row(rows: Sequence[Json]) -> Json | None:
    """Of the rows tried the one of highest speed-up that is faster than plain beyond doubt, if any is."""
    timed = tried(rows)
    found = [row for row in timed if beyond_doubt(row, "faster", len(timed))]
    return max(found, key=lambda row: row["speedup"]["median"], default=None)


def beyond_doubt(row: Json, verdict: str, number: int) -> bool:
    """Whether a row's interval says so, and its pairs do with the number of rows tried counted (Bonferroni)."""
    speedup = row["speedup"]
    return bool(speedup["verdict"] == verdict and speedup["p_value"] * number <= CHANCE)


def pairs_needed(number: int) -> int:
    """Pairs with which one of so many rows can be beyond doubt: all of them on one side.

    >>> pairs_needed(10)  # 2 / 2^9 · 10 = 0.04
    9
    """
    return math.ceil(math.log2(2 * number / CHANCE))


def verdict_line(rows: Sequence[Json]) -> str:
    """What to make of the ledger in one sentence; "fastest" and "slower" hold with all rows tried counted."""
    label = {row["id"]: row["label"] for row in rows}
    timed, best = tried(rows), fastest_row(rows)
    maybe = [row for row in timed if row["speedup"]["verdict"] == "faster"]
    rivals = {(row["backend"], row["batch"]) for row in rows if row["id"] in {r["speedup"]["baseline"] for r in timed}}
    slower = [
        label[row["id"]]
        for row in timed
        if beyond_doubt(row, "slower", len(timed)) and (row["backend"], row["batch"]) in rivals
    ]  # arms of slower backends are no news
    if best:
        head = f"fastest: {_with_speedup(best)}"
    elif any(row["speedup"]["verdict"] is None for row in timed):
        head = "one timing a row says nothing of the spread: give --repeats 5 or more"
    elif maybe:
        first = max(maybe, key=lambda row: row["speedup"]["median"])
        head = (
            f"not sure yet: {_with_speedup(first)}, but of {len(timed)} arms one may look so by chance: give more "
            f"--repeats, so that an arm is timed {pairs_needed(len(timed))} times or more over all prompts"
        )
    else:
        head = "do not speculate: no arm is faster than plain decoding here"
    failed = [row["label"] for row in rows if row["lossless"] and not row["checks_passed"]]
    parts = [head]
    if slower:
        if (others := len(slower) - MOST_NAMED) > 0:
            slower = [*slower[:MOST_NAMED], f"{others} more"]
        parts.append(f"{', '.join(slower)} {'is' if len(slower) == 1 else 'are'} slower than plain")
    if failed:
        parts.append(f"NOT EXACT: {', '.join(failed)}")
    return "; ".join(parts)


def _with_speedup(row: Json) -> str:
    speedup = row["speedup"]
    return f"{row['label']}, {speedup['median']:.2f}× [{speedup['low']:.2f}, {speedup['high']:.2f}]"
