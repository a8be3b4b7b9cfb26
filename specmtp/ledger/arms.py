"""The arms of a bench: every way of decoding that gets a row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specmtp.checkpoint import Checkpoint
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import AnyDecoder, Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.uncached import UncachedDecoder

PLAIN = "plain"
METHODS = ("draft", "mtp")
GAMMAS = {"draft": (1, 2, 3, 4, 6, 8), "mtp": (1, 2, 3, 4)}
"""The gammas a drafter has rows for unless told."""


@dataclass(frozen=True)
class Arm:
    """A drafter at a gamma; uncached arms decode as the reference experiment does, greedy ones at temperature 0."""

    method: str
    gamma: int
    uncached: bool = False
    greedy: bool = False

    @property
    def id(self) -> str:
        name = self.method if self.method == PLAIN else f"{self.method}_g{self.gamma}"
        return name + "_uncached" * self.uncached + "_greedy" * self.greedy

    @property
    def label(self) -> str:
        name = {"mtp": "MTP"}.get(self.method, self.method)
        name = name if self.method == PLAIN else f"{name} γ={self.gamma}"
        return name + ", uncached" * self.uncached + ", greedy" * self.greedy

    @property
    def baseline(self) -> "Arm":
        """The plain arm that speed-ups are measured against: of the same window rule and sampling."""
        return replace(self, method=PLAIN, gamma=0)

    @property
    def backend(self) -> str:
        return "uncached" if self.uncached else "eager"

    @property
    def window_rule(self) -> str:
        return "crop" if self.uncached else "sliding"


def choose_arms(
    methods: Sequence[str], gammas: Iterable[int] | None, uncached: bool = False, greedy: bool = False
) -> list[Arm]:
    """plain, then every method at its gammas (its own list, or the given one); then the twins that were asked for."""
    arms = [Arm(PLAIN, 0)]
    for method in METHODS:
        if method in methods:
            arms += [Arm(method, gamma) for gamma in (GAMMAS[method] if gammas is None else sorted(set(gammas)))]
    uncached_twins = [replace(arm, uncached=True) for arm in arms if uncached]
    return arms + uncached_twins + [replace(arm, greedy=True) for arm in arms if greedy]


def make_decoder(arm: Arm, target: Checkpoint, draft: Checkpoint | None, sampler: Sampler) -> AnyDecoder:
    """The decoder of an arm; a greedy arm's own sampler goes before the given one."""
    sampler = Sampler(0) if arm.greedy else sampler
    if arm.uncached:
        return UncachedDecoder(target.net, arm.method, arm.gamma, sampler, draft.net.gpt if draft else None)
    drafter: Drafter
    if arm.method == PLAIN:
        drafter = NoDrafter(target.net.gpt.config.vocab_size)
    elif arm.method == "mtp":
        drafter = MTPDrafter(target.net, arm.gamma)
    else:
        assert draft is not None
        drafter = DraftModel(draft.net.gpt, arm.gamma)
    return Decoder(target.net.gpt, drafter, sampler)
