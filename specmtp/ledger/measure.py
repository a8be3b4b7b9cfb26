"""Times arms in turns, and single forwards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specmtp.decoding.cudagraph import capture
from specmtp.decoding.graphs import Compiled, empty_call
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.trace import Counts, Trace
from specmtp.ledger.arms import UNCACHED, Arm, Drafters
from specmtp.ledger.parts import EMPTY, PARTS, RoundParts
from specmtp.ledger.timing import Clock, Sample, interleave, median_seconds
from specmtp.nn.cache import KVCache, causal_geometry, ring_slots
from specmtp.nn.fused import FusedGPT, FusedMultiTokenGPT
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Decoders = dict[Arm, AnyDecoder]
Progress = Callable[[str], None]


@dataclass
class Measured:
    """What one arm did on the clock."""

    samples: list[Sample] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    prefill_forwards: int = 0
    parts: list[dict[str, float]] = field(default_factory=list)
    """Seconds of the parts of a round, measured after every generation; none where they were not asked for."""

    @property
    def median_parts(self) -> dict[str, float] | None:
        """Of every part the median over its measurements, seconds a round."""
        return {n: float(np.median([p[n] for p in self.parts])) for n in PARTS} if self.parts else None

    @property
    def counts(self) -> Counts:
        counts = Counts.empty(self.traces[0].gamma)
        for trace in self.traces:
            counts += trace.counts()
        counts.check()
        return counts


@torch.inference_mode()
def time_arms(
    decoders: Decoders,
    prompts: Sequence[list[int]],
    num_tokens: int,
    repeats: int | None,
    seed: int,
    clock: Clock,
    progress: Progress,
    parts: Mapping[Arm, RoundParts] | None = None,
    enough: Callable[[dict[Arm, Measured]], bool] = lambda _: False,
) -> dict[Arm, Measured]:
    """Times every arm on every prompt, ``repeats`` times, in random order within a repeat and prompt.

    Each generation starts from a fresh prefill, timed apart; repeat r uses seed + r for every arm. One untimed pass
    over all arms and prompts comes first.

    Args:
        decoders: by arm.
        prompts: committed ids.
        num_tokens: of a generation.
        repeats: how often; None goes on until it is enough.
        seed: of the order and of the noise.
        clock: times generations.
        progress: told what comes next.
        parts: of arms whose round is taken apart: measured after each of their generations, under the same conditions.
        enough: asked after every repeat.
    """
    by_id = {arm.id: arm for arm in decoders}
    parts = parts or {}
    measured = {arm: Measured() for arm in decoders}
    for arm, decoder in decoders.items():
        progress(f"warm-up {arm.label}")
        for prompt in prompts:
            state, _ = decoder.prefill([prompt] * arm.batch)
            decoder.play_rounds(state, num_tokens, seed)
    of = "" if repeats is None else f" of {repeats}"
    last = 0
    for number, (repeat, index, arm_id) in enumerate(interleave(list(by_id), repeats, len(prompts), seed)):
        if repeat > last and enough(measured):
            break
        arm, last = by_id[arm_id], repeat
        decoder = decoders[arm]
        progress(f"repeat {repeat + 1}{of}, {arm.label}")
        (state, forwards), prefill_seconds = clock.time(
            lambda d=decoder, i=index, b=arm.batch: d.prefill([prompts[i]] * b)  # type: ignore[misc]
        )
        trace, seconds = clock.time(
            lambda d=decoder, s=state, r=repeat: d.play_rounds(s, num_tokens, seed + r)  # type: ignore[misc]
        )
        measured[arm].samples.append(Sample(number, arm_id, repeat, index, seconds, prefill_seconds))
        assert trace is not None
        measured[arm].traces.append(trace)
        measured[arm].prefill_forwards += forwards
        if arm in parts:
            measured[arm].parts.append(parts[arm].seconds(clock, len(trace.active_RB)))
    return measured


@torch.inference_mode()
def forward_seconds(
    target: GPT, drafters: Drafters, clock: Clock, backends: Sequence[str] = ("eager",), repeats: int = 200
) -> dict[tuple[str, str], float]:
    """Median seconds of one forward at batch 1, head included, by network (target, or a drafter's name) and backend.

    Of one token with a cache; uncached, of a whole window. What calling a graph costs is taken off the compiled ones: a
    round calls but one.
    """
    found: dict[tuple[str, str], float] = {}
    for backend in backends:
        seconds = median_seconds(clock, dict(MAKE_CALLS[backend](target, drafters)), repeats)
        call = seconds.pop(EMPTY, 0.0)
        found |= {(name, backend): max(cost - call, 1e-9) for name, cost in seconds.items()}
    return found


Calls = dict[str, Callable[[], object]]


def _cached_calls(target: GPT, drafters: Drafters) -> dict[str, "partial[Tensor]"]:
    calls = {"target": _forward_call(target)}
    for name, net in drafters.items():
        if net is not None:
            calls[name] = _forward_call(net) if isinstance(net, GPT) else _mtp_call(net)
    return calls


def _compiled_calls(target: GPT, drafters: Drafters) -> Calls:
    device = target.lm_head.weight.device
    calls: Calls = {EMPTY: empty_call(device)}
    for name, net in {"target": target, **drafters}.items():
        if net is not None:
            call = _forward_call(FusedGPT(net)) if isinstance(net, GPT) else _mtp_call(FusedMultiTokenGPT(net))
            calls[name] = Compiled(call.func, device).bound(*call.args)
    return calls


def _uncached_calls(target: GPT, drafters: Drafters) -> Calls:
    calls: Calls = {}
    for name, net in {"target": target, **drafters}.items():
        if isinstance(net, GPT):
            window = torch.zeros(1, net.config.attention_window, dtype=torch.long, device=net.lm_head.weight.device)
            calls[name] = partial(net, window)
        elif net is not None:
            calls[name] = _uncached_mtp_call(net)
    return calls


def _forward_call(net: Any) -> "partial[Tensor]":
    device, dtype = net.lm_head.weight.device, net.lm_head.weight.dtype
    cache = KVCache.create(net.config, 1, ring_slots(net.config, 1), device, dtype)
    start_B = torch.full((1,), net.config.attention_window, device=device)
    ids_BT = torch.zeros(1, 1, dtype=torch.long, device=device)

    def forward(ids_BT: Tensor, start_B: Tensor, cache: KVCache) -> Tensor:
        return net.logits(net.hidden(ids_BT, cache, cache.geometry(start_B, 1)))

    return partial(forward, ids_BT, start_B, cache)


def _mtp_call(net: Any) -> "partial[Tensor]":
    gpt = net.gpt
    device, dtype = gpt.lm_head.weight.device, gpt.lm_head.weight.dtype
    cache = KVCache.create(gpt.config, 1, ring_slots(gpt.config, 1, 1), device, dtype, num_layers=1)
    start_B = torch.full((1,), gpt.config.attention_window, device=device)
    ids_BT = torch.zeros(1, 1, dtype=torch.long, device=device)
    h_BTD = torch.zeros(1, 1, gpt.config.d_model, device=device, dtype=dtype)

    def forward(h_BTD: Tensor, ids_BT: Tensor, start_B: Tensor, cache: KVCache) -> Tensor:
        geometry = cache.geometry(start_B, 1)
        return gpt.logits(net.mtp.at(1)(h_BTD, gpt.embed_tokens(ids_BT), geometry, cache.layer(0)))

    return partial(forward, h_BTD, ids_BT, start_B, cache)


def _uncached_mtp_call(net: MultiTokenGPT) -> Callable[[], object]:
    """An MTP draft as the reference makes it: the module over the hidden rows of a window."""
    gpt, rows = net.gpt, net.gpt.config.attention_window - 1
    device, dtype = gpt.lm_head.weight.device, gpt.lm_head.weight.dtype
    ids_BT = torch.zeros(1, rows, dtype=torch.long, device=device)
    h_BTD = torch.zeros(1, rows, gpt.config.d_model, device=device, dtype=dtype)
    geometry = causal_geometry(rows, gpt.config, device)
    return lambda: gpt.logits(net.mtp.at(1)(h_BTD, gpt.embed_tokens(ids_BT), geometry)[:, -1:])


def _captured_calls(target: GPT, drafters: Drafters) -> Calls:
    return {name: capture(call) for name, call in _compiled_calls(target, drafters).items()}


MAKE_CALLS: dict[str, Callable[[GPT, Drafters], Mapping[str, Callable[[], object]]]] = {
    "eager": _cached_calls,
    "compile": _compiled_calls,
    "cudagraph": _captured_calls,
    UNCACHED: _uncached_calls,
}
