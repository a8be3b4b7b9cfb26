"""The planner's calibration, its plan as plain data, and what following it would have cost."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from specmtp.analysis.planner import Plan, plan
from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.trace import Counts
from specmtp.ledger.arms import GRAPHS, PLAIN, Arm, is_usual_row
from specmtp.ledger.measure import Measured, time_arms
from specmtp.ledger.timing import Clock

Json = dict[str, Any]
TOKENS, GRAPH_TOKENS, REPEATS = 120, 600, 3
"""Of a calibration's generations; those of graphs take a hundredth of a second, and would else be mostly beginnings."""
OTHER_SEEDS = 1 << 20
"""Where a calibration's seeds begin: not those of the ledger's repeats."""

Group = tuple[str, str, int]
"""Method, backend and batch: what one gamma is chosen for."""


def planned(arm: Arm) -> bool:
    """Whether an arm takes part: with a cache, sampled as the bench samples, with the usual accept rule."""
    return arm.is_usual and not (arm.uncached or arm.greedy)


@torch.inference_mode()
def calibrate(
    decoders: Mapping[Arm, AnyDecoder],
    prompts: Sequence[list[int]],
    seed: int,
    clock: Clock,
    progress: Callable[[str], None],
) -> dict[Group, Plan]:
    """Rates and costs of all arms in short generations, and the gamma that they make best for every group.

    Rates by position are pooled over the gammas of a group, for a draft does not know how many will follow it; a
    round's cost is its arm's own.

    Args:
        decoders: by arm; plain ones of every backend and batch among them.
        prompts: other ones than the ledger's.
        seed: the ledger's; the calibration's are others.
        clock: times generations.
        progress: told what comes next.
    """
    arms = {arm: decoder for arm, decoder in decoders.items() if planned(arm)}

    def say(what: str) -> None:
        progress(f"calibration: {what}")

    measured: dict[Arm, Measured] = {}
    for is_graph, tokens in ((False, TOKENS), (True, GRAPH_TOKENS)):
        some = {arm: decoder for arm, decoder in arms.items() if (arm.backend in GRAPHS) == is_graph}
        if some:
            measured |= time_arms(some, prompts, tokens, REPEATS, mix(seed, OTHER_SEEDS), clock, say)
    groups: dict[Group, list[Arm]] = {}
    for arm in arms:
        if arm.method != PLAIN:
            groups.setdefault((arm.method, arm.backend, arm.batch), []).append(arm)
    found = {}
    for group, members in groups.items():
        seconds = {arm.gamma: round_seconds(measured[arm]) for arm in members}
        plain = round_seconds(measured[Arm(PLAIN, 0, *group[1:])])
        found[group] = plan(pooled_rates([measured[arm].counts for arm in members]), seconds, plain)
    return found


def round_seconds(measured: Measured) -> float:
    """Median over generations of seconds a round."""
    each = [
        sample.seconds / len(trace.active_RB) for sample, trace in zip(measured.samples, measured.traces, strict=True)
    ]
    return sorted(each)[len(each) // 2]


def pooled_rates(counts: Sequence[Counts]) -> list[float | None]:
    """The chance that a draft is made and accepted at every position once all before it were, over arms of different
    gammas.
    """
    most = max(c.gamma for c in counts)
    accepted = [sum(c.accepted_at[i] for c in counts if i < c.gamma) for i in range(most)]
    reached = [sum((c.rounds, *c.accepted_at)[i] for c in counts if i < c.gamma) for i in range(most)]
    return [a / r if r else None for a, r in zip(accepted, reached, strict=True)]


def planner_json(plans: Mapping[Group, Plan], rows: Sequence[Json]) -> list[Json]:
    """Every plan beside what the ledger's rows say: the gamma that measured best, and what following the plan costs.

    Regret is the plan's time a token over the best one's, less 1; plain decoding of the same backend and batch is a
    choice too (gamma None).
    """
    ms = {
        (row["method"], row["backend"], row["batch"], row["gamma"]): row["ms_per_token"]
        for row in rows
        if row["speedup"] and is_usual_row(row)
    }
    return [_plan_json(group, found, ms) for group, found in plans.items()]


def _plan_json(group: Group, found: Plan, ms: Mapping[tuple[Any, ...], float]) -> Json:
    method, backend, batch = group
    choices = {gamma: ms.get((*group, gamma)) for gamma in found.speedups}
    choices[None] = ms.get((PLAIN, backend, batch, 0))  # type: ignore[index]
    times = {gamma: t for gamma, t in choices.items() if t is not None}
    best = min(times, key=lambda gamma: times[gamma]) if times else None
    regret = times[found.gamma] / times[best] - 1 if found.gamma in times and best in times else None
    return {
        "method": method,
        "backend": backend,
        "batch": batch,
        "gamma": found.gamma,
        "predicted": [{"gamma": gamma, "speedup": speedup} for gamma, speedup in found.speedups.items()],
        "measured_best_gamma": best,
        "regret": regret,
    }
