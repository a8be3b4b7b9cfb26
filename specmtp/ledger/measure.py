"""Measures arms: checks first, then the clock, arms in turns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specmtp.analysis.bigram_check import BigramCheck, check_bigrams, sample_rows, tokens_a_row
from specmtp.analysis.exactness import GreedyCheck, compare_greedy
from specmtp.analysis.sampling_check import SamplingCheck, check_sampling
from specmtp.data.seeding import mix
from specmtp.decoding.cudagraph import capture
from specmtp.decoding.graphs import Compiled, empty_call
from specmtp.decoding.loop import AnyDecoder, filled_batches
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import Counts, Trace
from specmtp.ledger.arms import UNCACHED, YARDSTICK, Arm
from specmtp.ledger.timing import Clock, Sample, cpu_threads, interleave, median_seconds
from specmtp.nn.cache import KVCache, causal_geometry, ring_slots
from specmtp.nn.fused import FusedGPT, FusedMultiTokenGPT
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Decoders = dict[Arm, AnyDecoder]
Progress = Callable[[str], None]


@dataclass
class Checks:
    """Results of the exactness checks by arm."""

    greedy: dict[Arm, list[GreedyCheck]] = field(default_factory=dict)
    sampling: dict[Arm, SamplingCheck] = field(default_factory=dict)
    bigrams: dict[Arm, BigramCheck] = field(default_factory=dict)

    def passed(self, arm: Arm) -> bool:
        """Whether everything that was checked of an arm, or of the one it is checked as, held."""
        arm = arm.checked_as
        found: list[GreedyCheck | SamplingCheck | BigramCheck | None] = [
            *self.greedy.get(arm, []),
            self.sampling.get(arm),
            self.bigrams.get(arm),
        ]
        return all(check is None or check.passed for check in found)


@dataclass(frozen=True)
class GreedyTask:
    """Prompts of a greedy check and the tokens to decode after each."""

    prompts: list[list[int]]
    num_tokens: int

    def fits(self, window: int, gamma: int) -> bool:
        """Whether prompt, tokens and the drafts past them stay inside the window."""
        return max(map(len, self.prompts)) + self.num_tokens + gamma <= window


@torch.inference_mode()
def run_checks(
    decoders: Decoders,
    greedy_tasks: Sequence[GreedyTask],
    contexts: Sequence[list[int]],
    draws: int,
    seed: int,
    threads: int,
    progress: Progress,
) -> Checks:
    """Greedy identity on every task, then the law of samples, of every arm; then bigrams of whole texts of some.

    The cached plain arm is the yardstick of the greedy check, and has its own law checked like the others. Uncached
    arms are other generators past the window: they are held to what fits inside it, and to the first context alone.
    Compiled arms run on as many threads as when they are timed, for which they were compiled; others on all.
    """

    def right_threads(decoder: AnyDecoder) -> AbstractContextManager[None]:
        return cpu_threads(threads if decoder.batch else torch.get_num_threads())

    checks = Checks()
    window = decoders[YARDSTICK].target.config.attention_window
    for task in greedy_tasks:
        plain = decoders[YARDSTICK].with_sampler(Sampler(0))
        wanted = plain.generate(task.prompts, task.num_tokens, seed).tokens
        for arm, decoder in decoders.items():
            progress(f"greedy {arm.label}, {len(task.prompts)} × {task.num_tokens} tokens")
            if arm == YARDSTICK or (arm.uncached and not task.fits(window, arm.gamma)):
                continue
            greedy = decoder.with_sampler(Sampler(0))
            batch = decoder.batch or len(task.prompts)
            found: list[list[int]] = []
            with right_threads(decoder):
                for group in filled_batches(task.prompts, batch):
                    found += greedy.generate(group, task.num_tokens, seed).tokens
            found = found[: len(task.prompts)]
            checks.greedy.setdefault(arm, []).append(compare_greedy(plain.target, task.prompts, wanted, found))
    for i, (arm, decoder) in enumerate(decoders.items()):
        progress(f"sampling {arm.label}")
        context, *others = contexts
        if arm.uncached:
            context, others = context[-max(window - arm.gamma, 1) :], []
        rounds = rounds_of(arm, draws)
        with right_threads(decoder):
            checks.sampling[arm] = check_sampling(decoder, context, rounds, seed + i, len(decoders), others)
    plain_rows: list[list[int]] = []
    for i, arm in enumerate(bigram_arms(decoders, decoders[YARDSTICK].sampler)):
        progress(f"bigrams {arm.label}, {draws} tokens")
        with right_threads(decoders[arm]):
            rows = sample_rows(decoders[arm], contexts[0], draws, tokens_a_row(draws), mix(seed, i))
        if arm == YARDSTICK:
            plain_rows = rows
        else:
            checks.bigrams[arm] = check_bigrams(plain_rows, rows, decoders[arm].target.config.vocab_size, seed)
    return checks


def bigram_arms(checked: Iterable[Arm], sampler: Sampler) -> list[Arm]:
    """Arms whose texts the bigram check takes: the yardstick, then what it is compared with.

    Those are compiled arms at batch 1, where texts this long are cheap and only bigrams see what goes wrong far into
    one, and of eager arms those with gamma 1. None at temperature 0, where the greedy check says more.
    """
    found = [
        arm
        for arm in checked
        if arm.window_rule == "sliding" and arm.batch == 1 and (arm.backend != "eager" or arm.gamma == 1)
    ]
    return [YARDSTICK, *found] if found and not sampler.greedy else []


def rounds_of(arm: Arm, draws: int) -> int:
    """Rounds of an arm's sampling check: all for gamma 1, a tenth for others, fewer where a round costs more."""
    if arm.uncached:
        return max(draws // 50, 1)
    return draws if arm.gamma == 1 and arm.backend == "eager" else max(draws // 10, 1)


@dataclass
class Measured:
    """What one arm did on the clock."""

    samples: list[Sample] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    prefill_forwards: int = 0

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
    repeats: int,
    seed: int,
    clock: Clock,
    progress: Progress,
) -> dict[Arm, Measured]:
    """Times every arm on every prompt, ``repeats`` times, in random order within a repeat and prompt.

    Each generation starts from a fresh prefill, timed apart; repeat r uses seed + r for every arm. One untimed pass
    over all arms and prompts comes first.
    """
    by_id = {arm.id: arm for arm in decoders}
    measured = {arm: Measured() for arm in decoders}
    for arm, decoder in decoders.items():
        progress(f"warm-up {arm.label}")
        for prompt in prompts:
            state, _ = decoder.prefill([prompt] * arm.batch)
            decoder.play_rounds(state, num_tokens, seed)
    for repeat, index, arm_id in interleave(list(by_id), repeats, len(prompts), seed):
        arm = by_id[arm_id]
        decoder = decoders[arm]
        progress(f"repeat {repeat + 1} of {repeats}, {arm.label}")
        (state, forwards), prefill_seconds = clock.time(
            lambda d=decoder, i=index, b=arm.batch: d.prefill([prompts[i]] * b)  # type: ignore[misc]
        )
        trace, seconds = clock.time(
            lambda d=decoder, s=state, r=repeat: d.play_rounds(s, num_tokens, seed + r)  # type: ignore[misc]
        )
        measured[arm].samples.append(Sample(arm_id, repeat, index, seconds, prefill_seconds))
        assert trace is not None
        measured[arm].traces.append(trace)
        measured[arm].prefill_forwards += forwards
    return measured


@torch.inference_mode()
def forward_seconds(
    target: MultiTokenGPT, draft: GPT | None, clock: Clock, backends: Sequence[str] = ("eager",), repeats: int = 200
) -> dict[tuple[str, str], float]:
    """Median seconds of one forward at batch 1, head included, by network (target, draft, mtp) and backend.

    Of one token with a cache; uncached, of a whole window. What calling a graph costs is taken off the compiled ones: a
    round calls but one.
    """
    found: dict[tuple[str, str], float] = {}
    for backend in backends:
        seconds = median_seconds(clock, dict(MAKE_CALLS[backend](target, draft)), repeats)
        call = seconds.pop(EMPTY, 0.0)
        found |= {(name, backend): max(cost - call, 1e-9) for name, cost in seconds.items()}
    return found


EMPTY = "empty"
"""A graph that does next to nothing."""


Calls = dict[str, Callable[[], object]]


def _cached_calls(target: Any, draft: Any) -> dict[str, "partial[Tensor]"]:
    calls = {"target": _forward_call(target.gpt)}
    if draft is not None:
        calls["draft"] = _forward_call(draft)
    if target.mtp.depth:
        calls["mtp"] = _mtp_call(target)
    return calls


def _compiled_calls(target: MultiTokenGPT, draft: GPT | None) -> Calls:
    fused = FusedMultiTokenGPT(target), FusedGPT(draft) if draft else None
    device = target.gpt.lm_head.weight.device
    calls = {name: Compiled(call.func, device).bound(*call.args) for name, call in _cached_calls(*fused).items()}
    return calls | {EMPTY: empty_call(device)}


def _uncached_calls(target: MultiTokenGPT, draft: GPT | None) -> Calls:
    calls: Calls = {}
    for name, net in (("target", target.gpt), ("draft", draft)):
        if net is not None:
            window = torch.zeros(1, net.config.attention_window, dtype=torch.long, device=net.lm_head.weight.device)
            calls[name] = partial(net, window)
    if target.mtp.depth:
        calls["mtp"] = _uncached_mtp_call(target)
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


def _captured_calls(target: MultiTokenGPT, draft: GPT | None) -> Calls:
    return {name: capture(call) for name, call in _compiled_calls(target, draft).items()}


MAKE_CALLS: dict[str, Callable[[Any, Any], Mapping[str, Callable[[], object]]]] = {
    "eager": _cached_calls,
    "compile": _compiled_calls,
    "cudagraph": _captured_calls,
    UNCACHED: _uncached_calls,
}
