"""Honest clocks, and arms that take turns."""

from itertools import islice

import pytest
import torch
from conftest import small_draft, small_target

from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.ledger.arms import Arm
from specmtp.ledger.measure import Measured, forward_seconds, time_arms
from specmtp.ledger.timing import CudaClock, WallClock, interleave, median_seconds


class FakeEvent:
    """A CUDA event by a fake clock in milliseconds: readable once awaited."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at, self.awaited = -1.0, False

    def record(self) -> None:
        self.at = FakeEvent.now

    def synchronize(self) -> None:
        self.awaited = True

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert end.awaited, "the end event was read before it was awaited"
        return end.at - self.at


def test_cuda_clock_awaits_and_gives_seconds() -> None:
    def work() -> str:
        FakeEvent.now += 2500.0
        return "done"

    assert CudaClock(FakeEvent).time(work) == ("done", 2.5)  # type: ignore[arg-type]


def test_wall_clock_waits_for_the_device() -> None:
    log: list[str] = []
    times = iter([1.0, 3.5])
    clock = WallClock(lambda: log.append("sync"), lambda: (log.append("read"), next(times))[1])
    assert clock.time(lambda: log.append("work"))[1] == 2.5
    assert log == ["sync", "read", "work", "sync", "read"]


def test_warm_up_is_not_counted() -> None:
    now, calls = [0.0], [0]

    def slow_at_first() -> None:
        calls[0] += 1
        now[0] += 1.0 if calls[0] <= 3 else 0.01

    assert median_seconds(WallClock(now=lambda: now[0]), {"a": slow_at_first}, 5, warmup=3)["a"] == pytest.approx(0.01)


def test_arms_are_interleaved() -> None:
    order = list(interleave(["a", "b", "c"], repeats=4, prompts=2, seed=0))
    assert len(order) == 24
    blocks = [tuple(arm for _, _, arm in order[i : i + 3]) for i in range(0, 24, 3)]
    assert all(sorted(block) == ["a", "b", "c"] for block in blocks) and len(set(blocks)) > 1
    assert order == list(interleave(["a", "b", "c"], repeats=4, prompts=2, seed=0))
    assert order == list(islice(interleave(["a", "b", "c"], None, 2, 0), 24))


def test_repeats_are_clean() -> None:
    """Repeat r gives the same counts whatever ran before it."""
    target, draft = small_target(), small_draft()
    plain, arm = Arm("plain", 0), Arm("draft", 2)
    decoders = {plain: Decoder(target.gpt, NoDrafter(13)), arm: Decoder(target.gpt, DraftModel(draft, 2))}
    runs = [time_arms(decoders, [[1, 2], [3]], 30, repeats, 5, WallClock(), lambda what: None) for repeats in (2, 3)]
    for one, two in zip(runs[0][arm].traces, sorted_traces(runs[1][arm])[:4], strict=True):
        assert torch.equal(one.num_accepted_RB, two.num_accepted_RB)
    counts = runs[1][arm].counts
    assert counts.draft_forwards == 2 * counts.target_forwards


def sorted_traces(measured: Measured) -> list:
    return [
        t
        for _, t in sorted(
            zip(measured.samples, measured.traces, strict=True), key=lambda p: (p[0].repeat, p[0].prompt)
        )
    ]


def test_forward_costs_are_positive() -> None:
    target = small_target()
    drafters = {"draft": small_draft(), "mtp": target, "ngram": None, "other": small_draft()}
    costs = forward_seconds(target.gpt, drafters, WallClock(), repeats=3)
    assert set(costs) == {(name, "eager") for name in ("target", "draft", "mtp", "other")}
    assert all(0 < s < 1 for s in costs.values())
