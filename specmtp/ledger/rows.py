"""Rows of the ledger: measured arms as plain data. What is missing is None."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from specmtp.analysis.exact_acceptance import Agreement
from specmtp.analysis.statistics import Interval, Spread, median_interval, rate_intervals
from specmtp.analysis.theory import expected_tokens, theoretical_speedup
from specmtp.analysis.waterfall import waterfall, waterfall_json
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import Trace
from specmtp.ledger.arms import NETWORKLESS, PLAIN, Arm
from specmtp.ledger.checks import Checks
from specmtp.ledger.measure import Measured
from specmtp.ledger.precision import fastest_plain, speedup_over

Json = dict[str, Any]
ByMethod = Mapping[str, Mapping[Sampler, Agreement]]


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
        networkless = arm.method in NETWORKLESS
        c = 0.0 if networkless else c
        seconds = [s.seconds for s in result.samples]
        pairs = zip(result.samples, result.traces, strict=True)
        once = [trace for sample, trace in pairs if not (sampled.greedy and sample.repeat)]  # greedy repeats are alike
        spread, rates = Spread.of(seconds), rate_intervals(once)
        baseline_arm = fastest_plain(measured, arm)
        speedup = speedup_json(*speedup_over(measured, arm, baseline_arm), baseline_arm.id)
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
                "draft_forwards": 0 if networkless else counts.draft_forwards,
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
                "speedup": speedup if checks.passed(arm) or not arm.lossless else None,
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


def speedup_json(speedup: Interval, p_value: float | None, baseline: str = PLAIN) -> Json:
    """Measured speed-up, what it is measured against, and whether the interval lies off 1."""
    low, high = speedup.low, speedup.high
    verdict = None if low is None or high is None else "faster" if low > 1 else "slower" if high < 1 else "same"
    return {
        "median": speedup.value, "low": low, "high": high, "baseline": baseline, "verdict": verdict, "p_value": p_value
    }  # fmt: skip


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [interval.low, interval.high]


def samples_json(measured: Mapping[Arm, Measured]) -> list[Json]:
    """All timed generations in execution order."""
    samples = sorted((s for m in measured.values() for s in m.samples), key=lambda s: s.number)
    return [{k: v for k, v in asdict(s).items() if k != "number"} for s in samples]


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
