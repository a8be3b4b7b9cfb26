"""Measures arms: checks first, then the clock, arms in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from specmtp.analysis.exactness import GreedyCheck, compare_greedy
from specmtp.analysis.sampling_check import SamplingCheck, check_sampling
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import Counts, Trace
from specmtp.ledger.arms import PLAIN, Arm
from specmtp.ledger.timing import Clock, Sample, interleave, median_seconds
from specmtp.nn.cache import KVCache, causal_geometry, ring_slots
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Decoders = dict[Arm, AnyDecoder]
Progress = Callable[[str], None]


@dataclass
class Checks:
    """Results of the exactness checks by arm."""

    greedy: dict[Arm, list[GreedyCheck]] = field(default_factory=dict)
    sampling: dict[Arm, SamplingCheck] = field(default_factory=dict)

    def passed(self, arm: Arm) -> bool:
        """Whether everything that was checked of an arm held; a greedy arm shares its sampled twin's decoder."""
        arm = replace(arm, greedy=False)
        sampling = self.sampling.get(arm)
        return all(c.passed for c in self.greedy.get(arm, [])) and (sampling is None or sampling.passed)


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
    progress: Progress,
) -> Checks:
    """Greedy identity on every task, then the law of samples, of every arm.

    The cached plain arm is the yardstick of the greedy check, and has its own law checked like the others. Uncached
    arms are other generators past the window: they are held to what fits inside it, and to the first context alone.
    """
    checks = Checks()
    yardstick = Arm(PLAIN, 0)
    window = decoders[yardstick].target.config.attention_window
    for task in greedy_tasks:
        plain = decoders[yardstick].with_sampler(Sampler(0))
        wanted = plain.generate(task.prompts, task.num_tokens, seed).tokens
        for arm, decoder in decoders.items():
            progress(f"greedy {arm.label}, {len(task.prompts)} × {task.num_tokens} tokens")
            if arm == yardstick or (arm.uncached and not task.fits(window, arm.gamma)):
                continue
            found = decoder.with_sampler(Sampler(0)).generate(task.prompts, task.num_tokens, seed).tokens
            checks.greedy.setdefault(arm, []).append(compare_greedy(plain.target, task.prompts, wanted, found))
    for i, (arm, decoder) in enumerate(decoders.items()):
        progress(f"sampling {arm.label}")
        context, *others = contexts
        if arm.uncached:
            context, others = context[-max(window - arm.gamma, 1) :], []
        checks.sampling[arm] = check_sampling(decoder, context, rounds_of(arm, draws), seed + i, len(decoders), others)
    return checks


def rounds_of(arm: Arm, draws: int) -> int:
    """Rounds of an arm's sampling check: all for gamma 1, a tenth for others, fewer without a cache (dearer)."""
    return max(draws // 50 if arm.uncached else draws if arm.gamma == 1 else draws // 10, 1)


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
            state, _ = decoder.prefill([prompt])
            decoder.play_rounds(state, num_tokens, seed)
    for repeat, index, arm_id in interleave(list(by_id), repeats, len(prompts), seed):
        arm = by_id[arm_id]
        decoder = decoders[arm]
        progress(f"repeat {repeat + 1} of {repeats}, {arm.label}")
        (state, forwards), prefill_seconds = clock.time(lambda d=decoder, i=index: d.prefill([prompts[i]]))  # type: ignore[misc]
        rounds, seconds = clock.time(
            lambda d=decoder, s=state, r=repeat: d.play_rounds(s, num_tokens, seed + r)  # type: ignore[misc]
        )
        measured[arm].samples.append(Sample(arm_id, repeat, index, seconds, prefill_seconds))
        measured[arm].traces.append(Trace.of(rounds))
        measured[arm].prefill_forwards += forwards
    return measured


@torch.inference_mode()
def forward_seconds(
    target: MultiTokenGPT, draft: GPT | None, clock: Clock, uncached: bool = False, repeats: int = 200
) -> dict[str, float]:
    """Median seconds of one cached forward of one token, batch 1, head included: of target, draft and MTP module.

    With ``uncached`` also those of a whole window without cache, under NAME_uncached.
    """
    calls: dict[str, Callable[[], object]] = {}
    for name, net in (("target", target.gpt), ("draft", draft)):
        if net is not None:
            calls[name] = _forward_call(net)
            if uncached:
                window = torch.zeros(1, net.config.attention_window, dtype=torch.long, device=net.lm_head.weight.device)
                calls[f"{name}_uncached"] = partial(net, window)
    if target.mtp.depth:
        calls["mtp"] = _mtp_call(target)
        if uncached:
            calls["mtp_uncached"] = _uncached_mtp_call(target)
    return median_seconds(clock, calls, repeats)


def _forward_call(net: GPT) -> Callable[[], object]:
    device, dtype = net.lm_head.weight.device, net.lm_head.weight.dtype
    cache = KVCache.create(net.config, 1, ring_slots(net.config, 1), device, dtype)
    start_B = torch.full((1,), net.config.attention_window, device=device)
    ids_BT = torch.zeros(1, 1, dtype=torch.long, device=device)
    return lambda: net.logits(net.hidden(ids_BT, cache, cache.geometry(start_B, 1)))


def _mtp_call(net: MultiTokenGPT) -> Callable[[], object]:
    gpt = net.gpt
    device, dtype = gpt.lm_head.weight.device, gpt.lm_head.weight.dtype
    cache = KVCache.create(gpt.config, 1, ring_slots(gpt.config, 1, 1), device, dtype, num_layers=1)
    start_B = torch.full((1,), gpt.config.attention_window, device=device)
    ids_BT = torch.zeros(1, 1, dtype=torch.long, device=device)
    h_BTD = torch.zeros(1, 1, gpt.config.d_model, device=device, dtype=dtype)
    return lambda: gpt.logits(
        net.mtp.at(1)(h_BTD, gpt.embed_tokens(ids_BT), cache.geometry(start_B, 1), cache.layer(0))
    )


def _uncached_mtp_call(net: MultiTokenGPT) -> Callable[[], object]:
    """An MTP draft as the reference makes it: the trunk's hidden rows of a window anew, then the module."""
    gpt = net.gpt
    ids_BT = torch.zeros(1, gpt.config.attention_window - 1, dtype=torch.long, device=gpt.lm_head.weight.device)
    geometry = causal_geometry(ids_BT.shape[1], gpt.config, ids_BT.device)
    return lambda: gpt.logits(net.mtp.at(1)(gpt.hidden(ids_BT), gpt.embed_tokens(ids_BT), geometry)[:, -1:])
