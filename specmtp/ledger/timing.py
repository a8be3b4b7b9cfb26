"""Clocks, and arms timed in turns.

The device is waited for before a reading: CUDA events around the whole generation where there is a GPU, perf_counter
elsewhere. All times are seconds.
"""

import itertools
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)


class Clock(Protocol):
    """Times a call."""

    name: str

    def time(self, call: Callable[[], T]) -> tuple[T, float]:
        """What the call returned, and the seconds it took on the device."""
        ...


class WallClock:
    """perf_counter, for devices that work in step with the host."""

    name = "perf_counter"

    def __init__(
        self, synchronize: Callable[[], None] | None = None, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._synchronize, self._now = synchronize or (lambda: None), now

    def time(self, call: Callable[[], T]) -> tuple[T, float]:
        self._synchronize()
        began = self._now()
        result = call()
        self._synchronize()
        return result, self._now() - began


class CudaClock:
    """CUDA events on the stream that runs the decoder; the end event is awaited before it is read."""

    name = "cuda_events"

    def __init__(self, event: Callable[..., torch.cuda.Event] = torch.cuda.Event) -> None:
        self._event = event

    def time(self, call: Callable[[], T]) -> tuple[T, float]:
        begin, end = self._event(enable_timing=True), self._event(enable_timing=True)
        begin.record()
        result = call()
        end.record()
        end.synchronize()
        return result, begin.elapsed_time(end) / 1000


@contextmanager
def cpu_threads(number: int) -> Iterator[None]:
    """So many CPU threads while the clock runs, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    if device.type == "cuda":
        return CudaClock()
    return WallClock(torch.mps.synchronize if device.type == "mps" else None)


@dataclass(frozen=True)
class Sample:
    """One timed generation."""

    number: int
    """In execution order, over all arms."""
    arm: str
    repeat: int
    prompt: int
    seconds: float
    prefill_seconds: float


def interleave(arms: Sequence[str], repeats: int | None, prompts: int, seed: int) -> Iterator[tuple[int, int, str]]:
    """(repeat, prompt, arm) in execution order: within a repeat and prompt every arm once, in random order.

    Without a number of repeats there is no end.
    """
    shuffler = random.Random(seed)
    for repeat in itertools.count() if repeats is None else range(repeats):
        for prompt in range(prompts):
            for arm in shuffler.sample(list(arms), len(arms)):
                yield repeat, prompt, arm


def median_seconds(
    clock: Clock, calls: Mapping[Name, Callable[[], object]], repeats: int, warmup: int = 3
) -> dict[Name, float]:
    """The median seconds of each of several calls, timed in turns after so many untimed ones."""
    for call in calls.values():
        for _ in range(warmup):
            call()
    samples: dict[Name, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            samples[name].append(clock.time(call)[1])
    return {name: sorted(values)[len(values) // 2] for name, values in samples.items()}
