"""The arms of a bench: every way of decoding that gets a row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specmtp.checkpoint import Checkpoint
from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.cudagraph import CudaGraphDecoder
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import AnyDecoder, Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.ngram import NGramDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.uncached import UncachedDecoder
from specmtp.nn.fused import FusedGPT, FusedMultiTokenGPT

PLAIN = "plain"
NGRAM = "ngram"
METHODS = ("draft", "mtp", NGRAM)
USUAL_METHODS = ("draft", "mtp")
"""Those that have rows unless told."""
METHOD_NAMES = {"mtp": "MTP", NGRAM: "n-gram"}
GAMMAS = {"draft": (1, 2, 3, 4, 6, 8), "mtp": (1, 2, 3, 4), NGRAM: (1, 2, 4, 8)}
"""The gammas a drafter has rows for unless told."""
GRAPHS = {"compile": CompiledDecoder, "cudagraph": CudaGraphDecoder}
"""Backends whose rounds are graphs: through torch.compile, and captured as one CUDA graph."""
BACKENDS = ("eager", *GRAPHS)
"""How rounds are run: op by op, or as graphs."""
UNCACHED = "uncached"
"""The backend of twins that decode as the reference experiment does."""


@dataclass(frozen=True)
class Arm:
    """A drafter at a gamma on a backend; greedy arms decode at temperature 0 whatever the others sample with."""

    method: str
    gamma: int
    backend: str = "eager"
    batch: int = 1
    greedy: bool = False

    @property
    def uncached(self) -> bool:
        return self.backend == UNCACHED

    @property
    def id(self) -> str:
        name = self.method if self.method == PLAIN else f"{self.method}_g{self.gamma}"
        backend = f"_{self.backend}" if self.backend != "eager" else ""
        return name + backend + (f"_b{self.batch}" if self.batch > 1 else "") + "_greedy" * self.greedy

    @property
    def label(self) -> str:
        name = METHOD_NAMES.get(self.method, self.method)
        name = name if self.method == PLAIN else f"{name} γ={self.gamma}"
        backend = {"eager": "", "compile": ", compiled", "cudagraph": ", CUDA graph", UNCACHED: ", uncached"}[
            self.backend
        ]
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        return name + backend + batch + ", greedy" * self.greedy

    @property
    def drafter_label(self) -> str:
        """The label without gamma and what else tells arms of one drafter apart."""
        return replace(self, batch=1, greedy=False).label.replace(f" γ={self.gamma}", "")

    @property
    def checked_as(self) -> "Arm":
        """The arm whose exactness checks are this one's: of the same function, whatever it samples with."""
        return replace(self, greedy=False, batch=self.batch if self.backend in GRAPHS else 1)

    @property
    def window_rule(self) -> str:
        return "crop" if self.uncached else "sliding"

    def is_baseline_of(self, other: "Arm") -> bool:
        """Whether this is plain decoding under the same conditions: a speed-up is over the fastest such."""
        own, others = ((arm.window_rule, arm.batch, arm.greedy) for arm in (self, other))
        return self.method == PLAIN and own == others


YARDSTICK = Arm(PLAIN, 0)
"""Eager plain decoding, which greedy checks compare with."""


def choose_arms(
    methods: Sequence[str],
    gammas: Iterable[int] | None,
    backends: Sequence[str] = ("eager",),
    batches: Sequence[int] = (1,),
    uncached: bool = False,
    greedy: bool = False,
    graph_gammas: Iterable[int] | None = None,
) -> list[Arm]:
    """plain, then every method at its gammas (its own list, or the given one), on every backend and batch; then twins.

    Twins are of batch 1. Backends of graphs take the arms of ``graph_gammas`` alone, where those are given.
    """
    wanted = None if graph_gammas is None else {0, *graph_gammas}
    arms = [Arm(PLAIN, 0)]
    for method in METHODS:
        if method in methods:
            arms += [Arm(method, gamma) for gamma in (GAMMAS[method] if gammas is None else sorted(set(gammas)))]
    cached = [
        replace(arm, backend=backend, batch=batch)
        for batch in batches
        for backend in backends
        for arm in arms
        if backend not in GRAPHS or wanted is None or arm.gamma in wanted
    ]
    uncached_twins = [replace(arm, backend=UNCACHED) for arm in arms if uncached and arm.method != NGRAM]
    return cached + uncached_twins + [replace(arm, greedy=True) for arm in cached if greedy and arm.batch == 1]


def make_decoders(
    arms: Sequence[Arm], target: Checkpoint, draft: Checkpoint | None, sampler: Sampler
) -> dict[Arm, AnyDecoder]:
    """The decoders of arms; a greedy arm is its sampled twin at temperature 0, with the twin's graph if compiled."""
    decoders = {arm: make_decoder(arm, target, draft, sampler) for arm in dict.fromkeys(arms) if not arm.greedy}
    greedy = {arm: decoders[replace(arm, greedy=False)].with_sampler(Sampler(0)) for arm in arms if arm.greedy}
    return decoders | greedy


def make_decoder(arm: Arm, target: Checkpoint, draft: Checkpoint | None, sampler: Sampler) -> AnyDecoder:
    """The decoder of an arm."""
    if arm.uncached:
        return UncachedDecoder(target.net, arm.method, arm.gamma, sampler, draft.net.gpt if draft else None)
    graph = GRAPHS.get(arm.backend)
    net: Any = FusedMultiTokenGPT(target.net) if graph else target.net
    drafter: Drafter
    if arm.method == PLAIN:
        drafter = NoDrafter(target.net.gpt.config.vocab_size)
    elif arm.method == "mtp":
        drafter = MTPDrafter(net, arm.gamma)
    elif arm.method == NGRAM:
        drafter = NGramDrafter(target.net.gpt.config.vocab_size, arm.gamma)
    else:
        assert draft is not None
        small: Any = FusedGPT(draft.net.gpt) if graph else draft.net.gpt
        drafter = DraftModel(small, arm.gamma)
    if graph:
        return graph(net.gpt, drafter, sampler, batch=arm.batch)
    return Decoder(net.gpt, drafter, sampler)
