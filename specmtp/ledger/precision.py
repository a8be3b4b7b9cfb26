"""Speed-ups with their intervals, and when they are known well enough."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specmtp.analysis.statistics import Interval, Spread, paired_ratio, sign_test_p
from specmtp.ledger.arms import Arm
from specmtp.ledger.measure import Measured

WANTED = 0.03
"""Half the width of a speed-up's 95 % interval, relative to it, that is good enough."""
LEAST_REPEATS = 5
"""Before which an interval is not believed."""


def fastest_plain(measured: Mapping[Arm, Measured], arm: Arm) -> Arm:
    """What an arm's speed-up is over: of the plain arms with its window rule and sampling, the one of lowest median."""
    plain = [other for other in measured if other.is_baseline_of(arm)]
    return min(plain, key=lambda other: Spread.of([s.seconds for s in measured[other].samples]).median)


def speedup_over(measured: Mapping[Arm, Measured], arm: Arm, baseline: Arm) -> tuple[Interval, float]:
    """An arm's speed-up over a baseline, paired by repeat and prompt, and the p-value of their being equally fast."""
    seconds = {(s.repeat, s.prompt): s.seconds for s in measured[baseline].samples}
    own = measured[arm].samples
    pairs = [seconds[s.repeat, s.prompt] for s in own], [s.seconds for s in own]
    return paired_ratio(*pairs), sign_test_p(*pairs)


def widest(measured: Mapping[Arm, Measured]) -> tuple[Arm, float] | None:
    """The arm whose speed-up is known worst, and its relative half width; None where none has an interval."""
    widths = {}
    for arm in measured:
        baseline = fastest_plain(measured, arm)
        if arm != baseline:
            found, _ = speedup_over(measured, arm, baseline)
            if found.low is not None and found.high is not None:
                widths[arm] = (found.high - found.low) / 2 / found.value
    return max(widths.items(), key=lambda item: item[1]) if widths else None


@dataclass
class Patience:
    """Enough is when every speed-up is within ± 3 %, or the seconds are spent."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    def enough(self, measured: Mapping[Arm, Measured]) -> bool:
        """Whether to stop after this repeat."""
        if time.monotonic() - self.began > self.seconds:
            return True
        repeats = 1 + max(s.repeat for m in measured.values() for s in m.samples)
        found = widest(measured)
        return repeats >= LEAST_REPEATS and (found is None or found[1] <= WANTED)


def precision_json(measured: Mapping[Arm, Measured], auto: bool) -> dict[str, Any]:
    """How well the speed-ups are known, as plain data."""
    found = widest(measured)
    return {
        "auto": auto,
        "wanted": WANTED if auto else None,
        "reached": found[1] if found else None,
        "widest_row": found[0].id if found else None,
    }


def precision_sentence(found: dict[str, Any], repeats: int) -> str:
    """What --repeats auto came to, for people."""
    reached = "no interval" if found["reached"] is None else f"± {100 * found['reached']:.1f} %"
    held = found["reached"] is not None and found["reached"] <= WANTED
    end = "reached" if held else "not reached in the time given (--seconds)"
    return f"repeats: {repeats}; the widest speed-up interval is {reached} ({found['widest_row']}), ± 3 % {end}"
