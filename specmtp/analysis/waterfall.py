"""From theory to the clock: what a token costs, term by term, every term measured on its own."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from specmtp.analysis.theory import expected_tokens

NAMES = {
    "theory": "theory: eq. (1) tokens for v(1) and γ draft forwards",
    "positions": "acceptance by position instead of one α",
    "verify": "verifying γ+1 tokens instead of one",
    "drafting": "drafting beyond γ forwards: catching up, sampling",
    "accept": "sampling, accepting, rings, records",
    "host": "host",
    "unexplained": "unexplained",
}
"""The terms in their order, as people read them."""


@dataclass(frozen=True)
class Waterfall:
    """What a token costs, in seconds; the terms sum up to ``measured``."""

    theory: float
    """Theorem 3.8: (γc + 1)·v(1) a round of eq. (1) tokens, with the pooled α."""
    positions: float
    """Of the tokens that a round really gave."""
    verify: float
    """v(γ+1) - v(1)."""
    drafting: float
    """What drafting took beyond γ single forwards: rewinding, feeding again, sampling."""
    accept: float
    """Distributions, accept rule, rings and records."""
    host: float
    """The loop, noise, traces."""
    unexplained: float
    """What measuring the parts one by one leaves."""
    measured: float

    @property
    def unexplained_share(self) -> float:
        """Of the measured time, without sign."""
        return abs(self.unexplained) / self.measured


def waterfall(
    gamma: int,
    alpha: float | None,
    c: float | None,
    tokens_per_round: float,
    one_forward: float,
    parts: Mapping[str, float],
    measured: float,
    batch: int = 1,
) -> Waterfall:
    """The terms of one row.

    Args:
        gamma: drafts a round.
        alpha: pooled; None where nothing was drafted.
        c: one draft forward over one target forward; None where nothing is drafted.
        tokens_per_round: tokens delivered, of all rows, over rounds.
        one_forward: v(1), seconds of the target's forward over one token, of as many rows.
        parts: seconds of a round's parts: draft, verify, accept, cache, host.
        measured: seconds a token.
        batch: rows decoded at once.

    >>> w = waterfall(1, 0.5, 0.5, 1.5, 1.0, dict(draft=0.6, verify=1.2, accept=0.1, cache=0.1, host=0.2), 1.5)
    >>> round(w.theory, 6), round(w.verify + w.drafting + w.accept + w.host, 6), round(w.unexplained, 6)
    (1.0, 0.466667, 0.033333)
    """
    drafts = gamma * (c or 0.0) * one_forward
    expected = batch * (expected_tokens(alpha, gamma) or 1.0)
    theory = (one_forward + drafts) / expected
    terms = {
        "theory": theory,
        "positions": (one_forward + drafts) / tokens_per_round - theory,
        "verify": (parts["verify"] - one_forward) / tokens_per_round,
        "drafting": (parts["draft"] - drafts) / tokens_per_round,
        "accept": (parts["accept"] + parts["cache"]) / tokens_per_round,
        "host": parts["host"] / tokens_per_round,
    }
    return Waterfall(**terms, unexplained=measured - sum(terms.values()), measured=measured)


def waterfall_json(found: Waterfall) -> dict[str, float]:
    """The terms in microseconds a token."""
    return {name: 1e6 * value for name, value in asdict(found).items()}
