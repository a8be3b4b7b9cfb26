"""Will it fit? What the rows of a batch take, before any work is done."""

import os
from collections.abc import Sequence

import torch

from specmtp.ledger.arms import Arm, Drafters
from specmtp.nn.cache import max_forward_tokens, ring_slots
from specmtp.nn.config import GPTConfig
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

GIB = 2**30


def row_bytes(arm: Arm, target: GPTConfig, net: GPT | MultiTokenGPT | None, width: int) -> int:
    """About what one row of an arm takes: caches, and the widest activations of a prefill chunk.

    Args:
        arm: which drafter and gamma.
        target: the target's shape.
        net: what its drafter runs.
        width: bytes of a number.
    """
    total = _network_bytes(target, ring_slots(target, arm.gamma), target.num_layers, width)
    if isinstance(net, GPT):
        total += _network_bytes(net.config, ring_slots(net.config, arm.gamma), net.config.num_layers, width)
    if isinstance(net, MultiTokenGPT):
        depth = min(net.mtp.depth, arm.gamma)
        slots = ring_slots(target, arm.gamma, depth)
        total += _network_bytes(target, slots, depth, width) + slots * target.d_model * width
    return total


def _network_bytes(config: GPTConfig, slots: int, layers: int, width: int) -> int:
    cache = 2 * layers * config.num_kv_heads * config.head_dim * slots * width
    tokens = max_forward_tokens(config, slots)
    attention = 4 * config.num_heads * tokens * slots
    return cache + attention + 4 * tokens * (2 * config.ffn_dim + 4 * config.d_model + 3 * config.vocab_size)


def memory_of(device: torch.device) -> int:
    """Bytes of memory: free ones of a GPU, all of the machine's otherwise."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(arms: Sequence[Arm], target: GPTConfig, drafters: Drafters, width: int, memory: int) -> None:
    """
    Raises:
        ValueError: an arm's batch takes more memory than there is; it says which size would fit.
    """
    for arm in arms:
        row = row_bytes(arm, target, drafters.get(arm.method), width)
        if row * arm.batch > memory:
            raise ValueError(
                f"a batch of {arm.batch} rows of {arm.label} takes about {row * arm.batch / GIB:.1f} GiB, and there "
                f"are {memory / GIB:.1f}: up to --batches {memory // row} would fit"
            )
