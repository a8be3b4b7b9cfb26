"""Exactness checks of all arms, and what they found."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch

from specmtp.analysis.bigram_check import BigramCheck, check_bigrams, sample_rows, tokens_a_row
from specmtp.analysis.exactness import GreedyCheck, compare_greedy
from specmtp.analysis.joint_check import JointCheck, PairLaw, check_joint, pair_law, uncertain_contexts
from specmtp.analysis.sampling_check import SamplingCheck, check_sampling
from specmtp.analysis.twin_check import TwinCheck, check_twin
from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder, filled_batches
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import YARDSTICK, Arm
from specmtp.ledger.measure import Decoders, Progress
from specmtp.ledger.timing import cpu_threads


@dataclass
class Checks:
    """Results of the exactness checks by arm."""

    greedy: dict[Arm, list[GreedyCheck]] = field(default_factory=dict)
    sampling: dict[Arm, SamplingCheck] = field(default_factory=dict)
    joint: dict[Arm, list[JointCheck]] = field(default_factory=dict)
    bigrams: dict[Arm, BigramCheck] = field(default_factory=dict)
    twins: dict[Arm, TwinCheck] = field(default_factory=dict)

    def passed(self, arm: Arm) -> bool:
        """Whether everything that was checked of an arm, or of the one it is checked as, held."""
        arm = arm.checked_as
        found: list[GreedyCheck | SamplingCheck | JointCheck | BigramCheck | TwinCheck | None] = [
            *self.greedy.get(arm, []),
            self.sampling.get(arm),
            *self.joint.get(arm, []),
            self.bigrams.get(arm),
            self.twins.get(arm),
        ]
        return all(check is None or check.passed for check in found)


JOINT_CONTEXTS = 4
"""Contexts of the joint check of every arm; one of an uncached arm."""
TWIN_CONTEXTS = 16
"""Contexts from which an arm drafts beside its eager twin."""


class JointLaws:
    """The laws of pairs that arms are held against: the first context's, and those of the most uncertain others."""

    def __init__(self, yardstick: AnyDecoder, contexts: Sequence[list[int]], seed: int) -> None:
        """
        Args:
            yardstick: plain decoding with target and sampler.
            contexts: of which the first and the most uncertain are taken.
            seed: of the noise floors.
        """
        self._target, self._sampler, self._seed = yardstick.target, yardstick.sampler, seed
        others = uncertain_contexts(self._target, self._sampler, contexts[1:], JOINT_CONTEXTS - 1)
        self._contexts = [contexts[0], *others]
        self._laws: dict[tuple[int, int, int], PairLaw] = {}

    def of(self, arm: Arm, draws: int) -> list[PairLaw]:
        """The laws of an arm's contexts; of uncached arms one, of a context so short that nothing is cropped."""
        window = self._target.config.attention_window
        if arm.uncached:
            return [self._law(0, max(window - arm.gamma - 1, 1), draws)]
        return [self._law(i, len(context), draws) for i, context in enumerate(self._contexts)]

    def _law(self, index: int, length: int, draws: int) -> PairLaw:
        key = index, length, draws
        if key not in self._laws:
            self._laws[key] = pair_law(self._target, self._sampler, self._contexts[index][-length:], draws, self._seed)
        return self._laws[key]


def pairs_of(arm: Arm, draws: int) -> int:
    """Pairs of an arm's joint check of one context: fewer where a round costs more."""
    return max(draws // (500 if arm.uncached else 40), 1)


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
    twins: Mapping[Arm, AnyDecoder] | None = None,
) -> Checks:
    """Greedy identity on every task, then the law of samples and of pairs, of every arm; then bigrams of texts of some;
    and the drafts of arms that have eager twins.

    The cached plain arm is the yardstick of the greedy check, and has its own law checked like the others. Uncached
    arms are other generators past the window: they are held to what fits inside it, and to the first context alone.
    Compiled arms run on as many threads as when they are timed, for which they were compiled; others on all.
    """

    def right_threads(decoder: AnyDecoder) -> AbstractContextManager[None]:
        return cpu_threads(threads if decoder.batch else torch.get_num_threads())

    checks = Checks()
    num_checks = len(decoders) + sum(1 if arm.uncached else JOINT_CONTEXTS for arm in decoders)
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
            checks.sampling[arm] = check_sampling(decoder, context, rounds, seed + i, num_checks, others, arm.by_place)
    laws = JointLaws(decoders[YARDSTICK], contexts, seed)
    for i, (arm, decoder) in enumerate(decoders.items()):
        progress(f"joint {arm.label}")
        with right_threads(decoder):
            checks.joint[arm] = [
                check_joint(decoder, law, mix(seed, i, n), num_checks, 1 if arm.uncached else None)
                for n, law in enumerate(laws.of(arm, pairs_of(arm, draws)))
            ]
    for i, (arm, twin) in enumerate((twins or {}).items()):
        progress(f"twin {arm.label}")
        with right_threads(decoders[arm]):
            checks.twins[arm] = check_twin(decoders[arm], twin, contexts[:TWIN_CONTEXTS], mix(seed, i))
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
    exact = [arm for arm in checked if arm.lossless and (arm.window_rule, arm.batch) == ("sliding", 1)]
    found = [arm for arm in exact if arm.backend != "eager" or arm.gamma == 1]
    return [YARDSTICK, *found] if found and not sampler.greedy else []


def rounds_of(arm: Arm, draws: int) -> int:
    """Rounds of an arm's sampling check: all for gamma 1, a tenth for others, fewer where a round costs more."""
    if arm.uncached:
        return max(draws // 50, 1)
    return draws if arm.gamma == 1 and arm.backend == "eager" else max(draws // 10, 1)
