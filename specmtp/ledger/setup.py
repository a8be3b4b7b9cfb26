"""What a bench works with: its settings, its arms and their decoders, and the texts that prompts are taken from."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.acceptance import own_texts
from specmtp.ledger.arms import (
    GRAPHS,
    TOKEN,
    YARDSTICK,
    Arm,
    Drafters,
    choose_arms,
    kind_of,
    make_decoder,
    make_decoders,
)
from specmtp.ledger.checks import GreedyTask
from specmtp.ledger.measure import Progress
from specmtp.ledger.memory import check_fits, memory_of
from specmtp.ledger.models import Models, Say, validation_ids
from specmtp.ledger.rows import Json
from specmtp.ledger.timing import Clock, clock_for, cpu_threads

CONTEXT_TOKENS, NUM_CONTEXTS = 64, 256
NUM_CALIBRATION_PROMPTS = 2
MOST_PROMPTS = 1 + NUM_CONTEXTS - NUM_CALIBRATION_PROMPTS
LEAST_CHECK_TEXT = 3000
"""Characters from which prompts and contexts of the checks are taken."""


@dataclass(frozen=True)
class Settings:
    """How a bench runs."""

    prompt: str
    tokens: int
    prompts: int
    """Prompts an arm: the given one, and pieces of the check text."""
    repeats: int | None
    """None: until the speed-ups are known well enough, or ``seconds`` are spent."""
    seconds: float
    draws: int
    """Rounds of the sampling check at gamma 1, of which other arms take a part; tokens of the bigram check."""
    seed: int
    sampler: Sampler
    gammas: list[int] | None
    graph_gammas: list[int] | None
    backends: list[str]
    batches: list[int]
    uncached: bool
    greedy: bool
    device: torch.device
    dtype: torch.dtype
    threads: int
    profile: bool = False
    rules: Sequence[str] = (TOKEN,)

    def arms(self, drafters: Drafters) -> list[Arm]:
        """The arms of these drafters."""
        return choose_arms(
            {name: kind_of(name, net) for name, net in drafters.items()},
            self.gammas,
            self.backends,
            self.batches,
            self.uncached,
            self.greedy,
            self.graph_gammas,
            self.rules,
        )

    def taken_apart(self, arms: Sequence[Arm]) -> list[Arm]:
        """Arms whose rounds' parts are measured: with a cache and the usual accept rule; of graphs, which take
        compiling, on demand.
        """
        usual = [arm for arm in arms if arm.is_usual and not arm.uncached]
        return [arm for arm in usual if arm.backend not in GRAPHS or self.profile]

    def json(self) -> Json:
        """As plain data."""
        return {**asdict(self), "device": self.device.type, "dtype": str(self.dtype).removeprefix("torch.")}


@dataclass(frozen=True)
class Setup:
    """Decoders that are ready to run, and what they are asked to go on from."""

    arms: list[Arm]
    checked: list[Arm]
    """Arms whose checks stand for others' too; the yardstick comes first."""
    decoders: dict[Arm, AnyDecoder]
    twins: dict[Arm, AnyDecoder]
    """Eager decoders of the networks of checked arms of graphs that draft."""
    clock: Clock
    prompts: list[list[int]]
    val_N: Tensor | None
    val_missing: str | None
    """Why there is no validation text."""
    own: list[list[int]]
    """The target's own samples."""
    text: list[int]
    """Of which prompts and contexts are taken."""
    contexts: list[list[int]]

    @property
    def timed(self) -> dict[Arm, AnyDecoder]:
        """The decoders of the arms, in their order."""
        return {arm: self.decoders[arm] for arm in self.arms}

    @property
    def calibration_prompts(self) -> list[list[int]]:
        """Prompts that are none of the ledger's."""
        return self.contexts[-NUM_CALIBRATION_PROMPTS:]


def set_up(models: Models, settings: Settings, say: Say, progress: Progress) -> Setup:
    """Puts models on the device, compiles what is to be compiled, and finds the texts.

    Raises:
        ValueError: the prompt has a character the models do not know, or a batch takes more memory than there is.
    """
    prompt = models.target.vocabulary.encode(settings.prompt, "the prompt").tolist()
    for checkpoint in models.checkpoints:
        checkpoint.net.to(device=settings.device, dtype=settings.dtype)
    target, drafters = models.target.net, models.drafters
    arms = settings.arms(drafters)
    check_fits(arms, target.gpt.config, drafters, settings.dtype.itemsize, memory_of(settings.device))
    checked = list(dict.fromkeys([YARDSTICK, *(arm.checked_as for arm in arms)]))
    decoders = make_decoders([*checked, *arms], target, drafters, settings.sampler)
    for arm, decoder in decoders.items():
        if isinstance(decoder, CompiledDecoder):
            progress(f"compiling {arm.label} (half a minute the first time)")
            with torch.inference_mode(), cpu_threads(settings.threads):
                decoder.warm_up()
    eager = {arm: replace(arm, backend="eager", batch=1) for arm in graphs_that_draft(checked)}
    twins = {arm: make_decoder(twin, target, drafters, settings.sampler) for arm, twin in eager.items()}
    val_N, val_missing = validation_ids(models.target)
    own = own_texts(decoders[YARDSTICK], models.target.vocabulary.symbols)
    text, why_not = check_text(val_N, own), val_missing
    if val_N is not None and len(val_N) < LEAST_CHECK_TEXT:
        why_not = f"the validation text has {len(val_N)} of the {LEAST_CHECK_TEXT} characters the checks take"
    if why_not:
        say(f"note: {why_not}; prompts and checks use the model's own text instead")
    contexts = sampling_contexts(text)
    prompts = [prompt, *contexts[1 : settings.prompts]]
    return Setup(
        arms, checked, decoders, twins, clock_for(settings.device), prompts, val_N, val_missing, own, text, contexts
    )


def graphs_that_draft(arms: Iterable[Arm]) -> list[Arm]:
    """Arms that are held against eager twins."""
    return [arm for arm in arms if arm.backend in GRAPHS and arm.gamma]


def check_text(val_N: Tensor | None, own: list[list[int]]) -> list[int]:
    """What prompts and contexts of the checks are taken from: validation text, else the model's own."""
    if val_N is not None and len(val_N) >= LEAST_CHECK_TEXT:
        return val_N.tolist()
    return [token for row in own for token in row]


def sampling_contexts(text: list[int]) -> list[list[int]]:
    """The reference experiment's context, then others spread evenly over the text."""
    stride = (len(text) - CONTEXT_TOKENS) // NUM_CONTEXTS
    starts = [500, *(i * stride for i in range(NUM_CONTEXTS))]
    return [text[start : start + CONTEXT_TOKENS] for start in starts]


def greedy_tasks(text: list[int]) -> list[GreedyTask]:
    """20 prompts of 8 characters × 48 tokens, inside the window, and × 600, far past it."""
    stride = min(997, (len(text) - 8) // 20)
    prompts = [text[i * stride : i * stride + 8] for i in range(20)]
    return [GreedyTask(prompts, 48), GreedyTask(prompts, 600)]
