"""Rows of the ledger: measured arms as plain data. What is missing is None."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from specmtp.analysis.bigram_check import BigramCheck
from specmtp.analysis.exact_acceptance import Agreement
from specmtp.analysis.exactness import GreedyCheck
from specmtp.analysis.joint_check import JointCheck
from specmtp.analysis.sampling_check import SamplingCheck
from specmtp.analysis.statistics import Interval, Spread, median_interval, rate_intervals
from specmtp.analysis.theory import expected_tokens, theoretical_speedup
from specmtp.analysis.waterfall import waterfall, waterfall_json
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import Trace
from specmtp.ledger.arms import NGRAM, PLAIN, Arm
from specmtp.ledger.checks import Checks
from specmtp.ledger.measure import Measured
from specmtp.ledger.parts import PARTS
from specmtp.ledger.precision import fastest_plain, speedup_over
from specmtp.ledger.profile import is_profiled

Json = dict[str, Any]
ByMethod = Mapping[str, Mapping[Sampler, Agreement]]


HEADERS = (
    "method", "target\nforwards", "draft\nforwards", "tokens /\nforward", "α", "Σ min\n(p,q)", "eq. (1)\ntokens", "c",
    "theory\nspeed-up", "ms /\ntoken", "measured\nspeed-up",
)  # fmt: skip
"""The table's columns, as ``cells`` gives them."""


def make_rows(
    measured: Mapping[Arm, Measured],
    checks: Checks,
    costs: Mapping[tuple[str, str], float],
    exact: Mapping[str, ByMethod],
    num_tokens: int,
    sampler: Sampler,
    common: Json,
    own: Mapping[Arm, Json],
) -> list[Json]:
    """One row an arm, in the order of the arms.

    Args:
        measured: traces and timings.
        checks: a lossless arm whose checks did not hold has no speed-up.
        costs: seconds of one forward by network (target, draft, mtp) and backend.
        exact: agreement of target and drafter over whole texts (validation, own), by method and sampler.
        num_tokens: the budget of a generation.
        sampler: what was sampled with.
        common: columns that are the same for all rows (device, dtype, threads, …).
        own: further columns of every arm.
    """
    rows = []
    for arm, result in measured.items():
        counts = result.counts
        alpha = counts.acceptance_rate
        sampled = replace(sampler, temperature=0.0) if arm.greedy else sampler
        cost, target_cost = (costs.get((name, arm.backend)) for name in (arm.method, "target"))
        c = cost / target_cost if cost and target_cost else None
        c = 0.0 if arm.method == NGRAM else c  # it runs no network
        seconds = [s.seconds for s in result.samples]
        spread, rates = Spread.of(seconds), rate_intervals(result.traces)
        baseline_arm = fastest_plain(measured, arm)
        speedup = speedup_over(measured, arm, baseline_arm)
        rows.append(
            {
                "id": arm.id,
                "label": arm.label,
                "method": arm.method,
                "drafter": None if arm.method == PLAIN else arm.method,
                "gamma": arm.gamma,
                "backend": arm.backend,
                "window_rule": arm.window_rule,
                "rule": arm.rule,
                "lossless": arm.lossless,
                **common,
                "batch": arm.batch,
                "temperature": sampled.temperature,
                "top_k": sampled.top_k,
                "top_p": sampled.top_p,
                "tokens": num_tokens,
                "generations": len(result.samples) * arm.batch,
                "rounds": counts.rounds,
                "target_forwards": counts.target_forwards,
                "prefill_forwards": result.prefill_forwards,
                "draft_forwards": counts.draft_forwards,
                "drafted": counts.drafted,
                "examined": counts.examined,
                "accepted": counts.accepted,
                "emitted": counts.emitted,
                "histogram": list(counts.histogram),
                "acceptance_at": counts.acceptance_at,
                "tokens_per_target_forward": counts.tokens_per_target_forward,
                "tokens_interval": _ends(rates.tokens_per_target_forward),
                "alpha": alpha,
                "alpha_interval": _ends(rates.alpha),
                "alpha_minpq": counts.alpha_minpq,
                "alpha_exact": {text: _alpha_exact(exact, text, arm, sampled) for text in ("validation", "own")},
                "expected_tokens": expected_tokens(alpha, arm.gamma),
                "c": c,
                "theory_speedup": theoretical_speedup(alpha, arm.gamma, c),
                "seconds": {**asdict(spread), "samples": seconds},
                "seconds_interval": _ends(median_interval(seconds)),
                "prefill_seconds": Spread.of([s.prefill_seconds for s in result.samples]).median,
                **own[arm],
                "ms_per_token": 1000 * spread.median / (num_tokens * arm.batch),
                "checks_passed": checks.passed(arm),
                "acceptance_matches_beta": counts.acceptance_matches_beta if arm.by_place else None,
                "speedup": speedup_json(speedup, baseline_arm.id) if checks.passed(arm) or not arm.lossless else None,
            }
            | parts_json(arm, measured, alpha, c, counts.rounds, num_tokens)
        )
    return rows


def parts_json(
    arm: Arm, measured: Mapping[Arm, Measured], alpha: float | None, c: float | None, rounds: int, num_tokens: int
) -> Json:
    """The parts of a row's round, and the waterfall of what a token costs; None where they were not measured."""
    result, plain = measured[arm], measured.get(replace(arm, method=PLAIN, gamma=0))
    parts, plain_parts = result.median_parts, plain.median_parts if plain else None
    if parts is None or plain_parts is None:
        return {"parts_us": None, "waterfall": None}
    delivered = num_tokens * arm.batch
    seconds = Spread.of([sample.seconds for sample in result.samples]).median
    found = waterfall(
        arm.gamma,
        alpha,
        c,
        delivered * len(result.samples) / (rounds / arm.batch),
        plain_parts["verify"],
        parts,
        seconds / delivered,
        arm.batch,
    )
    return {"parts_us": {name: 1e6 * value for name, value in parts.items()}, "waterfall": waterfall_json(found)}


def _alpha_exact(exact: Mapping[str, ByMethod], text: str, arm: Arm, sampler: Sampler) -> float | None:
    """Of a first draft; None where the text is not at hand, or is the own text of another sampler."""
    if arm.method not in exact.get(text, {}) or (text == "own" and arm.greedy):
        return None
    return exact[text][arm.method][sampler].alpha_exact


def speedup_json(speedup: Interval, baseline: str = PLAIN) -> Json:
    """Measured speed-up, what it is measured against, and whether the interval lies off 1."""
    low, high = speedup.low, speedup.high
    verdict = None if low is None or high is None else "faster" if low > 1 else "slower" if high < 1 else "same"
    return {"median": speedup.value, "low": low, "high": high, "baseline": baseline, "verdict": verdict}


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [interval.low, interval.high]


def samples_json(measured: Mapping[Arm, Measured]) -> list[Json]:
    """All timed generations in execution order."""
    samples = sorted((s for m in measured.values() for s in m.samples), key=lambda s: s.number)
    return [{k: v for k, v in asdict(s).items() if k != "number"} for s in samples]


def greedy_json(arm: Arm, check: GreedyCheck) -> Json:
    """A greedy check as plain data."""
    return _check_json(
        arm,
        check,
        {
            "prompts": check.prompts,
            "tokens": check.tokens,
            "identical": check.identical,
            "first_divergence": None if check.first_divergence is None else asdict(check.first_divergence),
            "tie_gap": check.tie_gap,
        },
    )


def sampling_json(arm: Arm, check: SamplingCheck, symbols: str, context: str, most: int = 12) -> Json:
    """A sampling check as plain data, with the symbols of highest p."""
    order = sorted(range(len(check.p)), key=lambda i: -check.p[i])[:most]
    kept = {k: v for k, v in asdict(check).items() if k not in ("p", "q", "frequency")}
    top = [
        {"symbol": symbols[i], "p": check.p[i], "q": check.q[i] if check.q else None, "frequency": check.frequency[i]}
        for i in order
    ]
    return _check_json(arm, check, kept) | {"context": context, "top": top}


def joint_json(arm: Arm, check: JointCheck, context: str) -> Json:
    """A check of pairs as plain data."""
    fields = {k: v for k, v in asdict(check).items() if k not in ("context", "draws")}
    return _check_json(arm, check, {"context": context, "n": check.draws, **fields})


def bigram_json(arm: Arm, check: BigramCheck) -> Json:
    """A bigram check as plain data."""
    return _check_json(arm, check, asdict(check))


def _check_json(arm: Arm, check: GreedyCheck | SamplingCheck | JointCheck | BigramCheck, fields: Json) -> Json:
    found = {"method": arm.method, "gamma": arm.gamma, "backend": arm.backend, "rule": arm.rule}
    return {**found, **fields, "passed": check.passed}


def sample_json(arm: Arm, trace: Trace, vocabulary: Vocabulary, num_tokens: int) -> Json:
    """The first tokens of a trace's first row: text, one mark a token, and what happened round by round."""
    rounds: list[Json] = []
    emitted = 0
    for played in trace.rounds(0):
        if emitted >= num_tokens:
            break
        emitted += len(played.emitted)
        rounds.append(
            {
                "drafts": vocabulary.decode(played.drafts),
                "p": played.p,
                "q": played.q,
                "accepted": played.accepted,
                "emitted": vocabulary.decode(played.emitted),
            }
        )
    return {
        "row": arm.id,
        "label": arm.label,
        "text": vocabulary.decode(trace.tokens(0)[:num_tokens]),
        "marks": trace.marks(0)[:num_tokens],
        "rounds": rounds,
    }


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


PLAN_HEADERS = ("planner", "batch", "γ* predicted", "speed-up\npredicted", "γ that\nmeasured best", "regret")
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


def verdict_line(rows: Sequence[Json]) -> str:
    """What to make of the ledger in one sentence; "faster" and "slower" only where the interval says so."""
    label = {row["id"]: row["label"] for row in rows}
    exact = [row for row in rows if row["lossless"]]
    shown = [row for row in exact if not row["id"].endswith(("_uncached", "_greedy"))]
    timed = [row for row in shown if row["speedup"] and row["method"] != PLAIN]
    faster = sorted((r for r in timed if r["speedup"]["verdict"] == "faster"), key=lambda r: -r["speedup"]["median"])
    fastest = {row["speedup"]["baseline"] for row in timed}  # arms of slower backends are no news
    rivals = {(row["backend"], row["batch"]) for row in rows if row["id"] in fastest}
    slower = [
        label[r["id"]] for r in timed if r["speedup"]["verdict"] == "slower" and (r["backend"], r["batch"]) in rivals
    ]
    if faster:
        best = faster[0]["speedup"]
        head = f"fastest: {label[faster[0]['id']]}, {best['median']:.2f}× [{best['low']:.2f}, {best['high']:.2f}]"
    elif any(r["speedup"]["verdict"] is None for r in timed):
        head = "one timing a row says nothing of the spread: give --repeats 5 or more"
    else:
        head = "do not speculate: no arm is faster than plain decoding here"
    failed = [label[r["id"]] for r in exact if not r["checks_passed"]]
    parts = [head]
    if slower:
        parts.append(f"{', '.join(slower)} {'is' if len(slower) == 1 else 'are'} slower than plain")
    if failed:
        parts.append(f"NOT EXACT: {', '.join(failed)}")
    return "; ".join(parts)
