"""What speculation should gain (Leviathan et al. 2023, arXiv 2211.17192)."""


def expected_tokens(alpha: float | None, gamma: int) -> float | None:
    """Tokens a target forward under independent acceptances, (1 - α^(γ+1)) / (1 - α): eq. (1).

    >>> expected_tokens(0.6, 2)
    1.96
    """
    if alpha is None:
        return None
    return sum(alpha**i for i in range(gamma + 1))


def theoretical_speedup(alpha: float | None, gamma: int, c: float | None) -> float | None:
    """Speed-up on the clock, eq. (1) / (γc + 1), where a draft forward costs c target forwards: Theorem 3.8."""
    tokens = expected_tokens(alpha, gamma)
    return None if tokens is None or c is None else tokens / (gamma * c + 1)
