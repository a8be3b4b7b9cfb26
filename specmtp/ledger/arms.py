"""The arms of a bench: every way of decoding that gets a row."""

from collections.abc import Iterable
from dataclasses import dataclass

from specmtp.checkpoint import Checkpoint
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler

PLAIN = "plain"
DRAFT_GAMMAS = (1, 2, 3, 4, 6, 8)
MTP_GAMMAS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Arm:
    """A drafter at a gamma."""

    method: str
    gamma: int

    @property
    def id(self) -> str:
        return self.method if self.method == PLAIN else f"{self.method}_g{self.gamma}"

    @property
    def label(self) -> str:
        names = {"mtp": "MTP"}
        return self.method if self.method == PLAIN else f"{names.get(self.method, self.method)} γ={self.gamma}"


def choose_arms(methods: Iterable[str], gammas: Iterable[int] | None) -> list[Arm]:
    """plain, then every method at its gammas (its own list, or the given one)."""
    arms = [Arm(PLAIN, 0)]
    for method, own in (("draft", DRAFT_GAMMAS), ("mtp", MTP_GAMMAS)):
        if method in methods:
            arms += [Arm(method, gamma) for gamma in (own if gammas is None else sorted(set(gammas)))]
    return arms


def make_decoder(arm: Arm, target: Checkpoint, draft: Checkpoint | None, sampler: Sampler) -> Decoder:
    """The decoder of an arm."""
    drafter: Drafter
    if arm.method == PLAIN:
        drafter = NoDrafter(target.net.gpt.config.vocab_size)
    elif arm.method == "mtp":
        drafter = MTPDrafter(target.net, arm.gamma)
    else:
        assert draft is not None
        drafter = DraftModel(draft.net.gpt, arm.gamma)
    return Decoder(target.net.gpt, drafter, sampler)
