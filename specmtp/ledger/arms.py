"""The arms of a bench: every way of decoding that gets a row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.cudagraph import CudaGraphDecoder
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import AnyDecoder, Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.ngram import NGramDrafter
from specmtp.decoding.rules import RULES, TOKEN
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.uncached import UncachedDecoder
from specmtp.nn.fused import FusedGPT, FusedMultiTokenGPT
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Drafters = Mapping[str, GPT | MultiTokenGPT | None]
"""Networks by drafter: a draft model, a target with MTP modules, or None where none is run."""

PLAIN = "plain"
NGRAM = "ngram"
NETWORKLESS: dict[str, Callable[[int, int], Drafter]] = {NGRAM: NGramDrafter}
"""Drafters that run no network, from the vocabulary's size and gamma, by name: rows on demand (``--arms``)."""
METHODS = ("draft", "mtp", *NETWORKLESS)
"""Drafters by kind, each under its kind's name; others have names of their own."""
USUAL_METHODS = ("draft", "mtp")
"""Those that have rows unless told."""
METHOD_NAMES = {"mtp": "MTP", NGRAM: "n-gram"}
GAMMAS = {"draft": (1, 2, 3, 4, 6, 8), "mtp": (1, 2, 3, 4), NGRAM: (1, 2, 4, 8)}
"""The gammas that drafters of a kind have rows for unless told."""
GRAPHS = {"compile": CompiledDecoder, "cudagraph": CudaGraphDecoder}
"""Backends whose rounds are graphs: through torch.compile, and captured as one CUDA graph."""
BACKENDS = ("eager", *GRAPHS)
"""How rounds are run: op by op, or as graphs."""
UNCACHED = "uncached"
"""The backend of twins that decode as the reference experiment does."""


@dataclass(frozen=True)
class Arm:
    """A drafter at a gamma on a backend, with an accept rule; greedy arms decode at temperature 0 in any case."""

    method: str
    gamma: int
    backend: str = "eager"
    batch: int = 1
    greedy: bool = False
    rule: str = TOKEN

    @property
    def is_usual(self) -> bool:
        """Whether its accept rule is the usual one."""
        return self.rule == TOKEN

    @property
    def lossless(self) -> bool:
        return RULES[self.rule].lossless

    @property
    def by_place(self) -> bool:
        """Whether a draft that is examined is accepted with probability β."""
        return RULES[self.rule].by_place

    @property
    def uncached(self) -> bool:
        return self.backend == UNCACHED

    @property
    def id(self) -> str:
        name = self.method if self.method == PLAIN else f"{self.method}_g{self.gamma}"
        name += f"_{self.rule}" if self.rule != TOKEN else ""
        backend = f"_{self.backend}" if self.backend != "eager" else ""
        return name + backend + (f"_b{self.batch}" if self.batch > 1 else "") + "_greedy" * self.greedy

    @property
    def label(self) -> str:
        name = method_name(self.method)
        name = name if self.method == PLAIN else f"{name} γ={self.gamma}"
        name += f", {RULES[self.rule].title}" if self.rule != TOKEN else ""
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


def method_name(method: str) -> str:
    """A drafter's name as people read it."""
    return METHOD_NAMES.get(method, method.replace("_", " "))


def is_usual_row(row: Mapping[str, Any]) -> bool:
    """Whether a ledger's row samples as its run does, with the usual accept rule (older ledgers name none)."""
    return row.get("rule", TOKEN) == TOKEN and not row["id"].endswith("_greedy")


YARDSTICK = Arm(PLAIN, 0)
"""Eager plain decoding, which greedy checks compare with."""


def choose_arms(
    kinds: Mapping[str, str],
    gammas: Iterable[int] | None,
    backends: Sequence[str] = ("eager",),
    batches: Sequence[int] = (1,),
    uncached: bool = False,
    greedy: bool = False,
    graph_gammas: Iterable[int] | None = None,
    rules: Sequence[str] = (TOKEN,),
) -> list[Arm]:
    """plain, then every drafter at its gammas (its kind's list, or the given one), on every backend and batch; twins.

    Twins are of batch 1: with another accept rule than the usual one, uncached, greedy. Backends of graphs take the
    arms of ``graph_gammas`` alone, where those are given. ``kinds`` has the kind of every drafter, by its name.

    Raises:
        ValueError: a rule has no row.
    """
    wanted = None if graph_gammas is None else {0, *graph_gammas}
    arms = [Arm(PLAIN, 0)]
    for method, kind in kinds.items():
        arms += [Arm(method, gamma) for gamma in (GAMMAS[kind] if gammas is None else sorted(set(gammas)))]
    cached = [
        replace(arm, backend=backend, batch=batch)
        for batch in batches
        for backend in backends
        for arm in arms
        if backend not in GRAPHS or wanted is None or arm.gamma in wanted
    ]
    ruled = []
    for rule in rules:
        if rule != TOKEN:
            own = [arm for arm in cached if arm.gamma >= RULES[rule].least_gamma and arm.batch == 1]
            if not own:
                least = RULES[rule].least_gamma
                raise ValueError(f"--rules {rule} has no row: it takes a drafter at batch 1 with gamma {least} or more")
            ruled += [replace(arm, rule=rule) for arm in own]
    usual = [arm for arm in arms if arm.method in (PLAIN, *USUAL_METHODS)]
    uncached_twins = [replace(arm, backend=UNCACHED) for arm in usual if uncached]
    return cached + ruled + uncached_twins + [replace(arm, greedy=True) for arm in cached if greedy and arm.batch == 1]


def kind_of(name: str, net: GPT | MultiTokenGPT | None) -> str:
    """The kind of a drafter: by its network, or its own where it runs none."""
    return name if net is None else "draft" if isinstance(net, GPT) else "mtp"


def make_decoders(
    arms: Sequence[Arm], target: MultiTokenGPT, drafters: Drafters, sampler: Sampler
) -> dict[Arm, AnyDecoder]:
    """The decoders of arms; a greedy arm is its sampled twin at temperature 0, with the twin's graph if compiled."""
    decoders = {arm: make_decoder(arm, target, drafters, sampler) for arm in dict.fromkeys(arms) if not arm.greedy}
    greedy = {arm: decoders[replace(arm, greedy=False)].with_sampler(Sampler(0)) for arm in arms if arm.greedy}
    return decoders | greedy


def make_decoder(arm: Arm, target: MultiTokenGPT, drafters: Drafters, sampler: Sampler) -> AnyDecoder:
    """The decoder of an arm."""
    net = drafters.get(arm.method)
    if arm.uncached:
        return UncachedDecoder(target, arm.method, arm.gamma, sampler, net if isinstance(net, GPT) else None)
    graph = GRAPHS.get(arm.backend)
    main: Any = FusedGPT(target.gpt) if graph else target.gpt
    drafter: Drafter
    if arm.method == PLAIN:
        drafter = NoDrafter(target.gpt.config.vocab_size)
    elif isinstance(net, MultiTokenGPT):
        heads: Any = FusedMultiTokenGPT(net) if graph else net
        main, drafter = heads.gpt, MTPDrafter(heads, arm.gamma)
    elif isinstance(net, GPT):
        small: Any = FusedGPT(net) if graph else net
        drafter = DraftModel(small, arm.gamma)
    else:
        drafter = NETWORKLESS[arm.method](target.gpt.config.vocab_size, arm.gamma)
    rule = RULES[arm.rule].accept
    if graph:
        return graph(main, drafter, sampler, rule, arm.batch)
    return Decoder(main, drafter, sampler, rule)
