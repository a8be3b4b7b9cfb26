"""Seeds of independent random streams."""

import numpy as np


def mix(*parts: int) -> int:
    """A 63-bit seed from integers; different parts give independent streams (numpy SeedSequence)."""
    return int(np.random.SeedSequence(list(parts)).generate_state(1, np.uint64)[0] >> 1)
