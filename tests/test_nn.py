"""The networks: sizes, causality, window, positions, cache."""

import math

import pytest
import torch
from conftest import SMALL, sharpened
from torch import Tensor

from specmtp.nn.cache import KVCache, ring_slots, rotary_angles
from specmtp.nn.config import GPTConfig
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MTP


def size(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_parameter_counts_of_the_reference() -> None:
    main = GPTConfig(head_bias=True)
    draft = GPTConfig(num_layers=1, d_model=64, num_heads=2, num_kv_heads=1, head_bias=True)
    assert (size(GPT(main)), size(GPT(draft))) == (742_849, 54_657)
    assert (size(GPT(GPTConfig())), size(MTP(GPTConfig(), 1))) == (742_784, 214_528)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"d_model": 10, "num_heads": 4}, "got 10 and 4"),
        ({"d_model": 64, "num_heads": 3}, "got 64 and 3"),
        ({"num_heads": 4, "num_kv_heads": 3}, "got 4 and 3"),
        ({"d_model": 12, "num_heads": 4, "num_kv_heads": 2}, "got 3"),
        ({"dropout": 1.5}, "got 1.5"),
        ({"num_layers": 0}, "got 0"),
        ({"attention_window": 0}, "got 0"),
    ],
)
def test_wrong_shapes_say_what_came(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPTConfig(**wrong)


def test_first_loss_is_near_uniform() -> None:
    torch.manual_seed(0)
    net = GPT(GPTConfig())
    ids = torch.randint(65, (8, 65))
    loss = torch.nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(65)) < 0.1


@pytest.fixture(scope="module")
def net() -> GPT:
    torch.manual_seed(0)
    return sharpened(GPT(SMALL))  # type: ignore[return-value]


def reference_logits(net: GPT, ids_T: Tensor) -> Tensor:
    """The whole network once more, the slow way: one query at a time, complex rotations, repeated keys."""
    c = net.config
    h_TD = net.embed_tokens.weight[ids_T]
    for layer in net.layers:
        x_TD = rms(h_TD, layer.input_layernorm.weight, c.norm_eps)
        q, k, v = (x_TD @ m.weight.T for m in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj))
        out = torch.zeros(len(ids_T), c.num_heads * c.head_dim)
        for head in range(c.num_heads):
            own = slice(head * c.head_dim, (head + 1) * c.head_dim)
            group = head // (c.num_heads // c.num_kv_heads)
            shared = slice(group * c.head_dim, (group + 1) * c.head_dim)
            qr, kr = turn(q[:, own], c.rope_base), turn(k[:, shared], c.rope_base)
            for t in range(len(ids_T)):
                first = max(0, t - c.attention_window + 1)
                weights = (kr[first : t + 1] @ qr[t] / c.head_dim**0.5).softmax(0)
                out[t, own] = weights @ v[first : t + 1, shared]
        h_TD = h_TD + out @ layer.self_attn.o_proj.weight.T
        x_TD = rms(h_TD, layer.post_attention_layernorm.weight, c.norm_eps)
        gate, up = x_TD @ layer.mlp.gate_proj.weight.T, x_TD @ layer.mlp.up_proj.weight.T
        h_TD = h_TD + (gate * gate.sigmoid() * up) @ layer.mlp.down_proj.weight.T
    return rms(h_TD, net.norm.weight, c.norm_eps) @ net.lm_head.weight.T


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turn(x_TE: Tensor, base: float) -> Tensor:
    half = x_TE.shape[1] // 2
    pairs = torch.complex(x_TE[:, :half].double(), x_TE[:, half:].double())
    angle = torch.arange(len(x_TE))[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], 1).float()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 30])
def test_forward_equals_the_slow_form(net: GPT, length: int) -> None:
    ids = torch.randint(13, (length,), generator=torch.Generator().manual_seed(length))
    torch.testing.assert_close(net(ids[None])[0], reference_logits(net, ids), atol=1e-4, rtol=1e-4)


def test_no_position_sees_what_comes_later(net: GPT) -> None:
    ids = torch.randint(13, (1, 20))
    changed = ids.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 13
    difference = (net(ids) - net(changed)).abs().amax(-1)[0]
    assert difference[:12].max() == 0
    assert difference[12] > 0


def test_window_bounds_what_a_layer_sees() -> None:
    torch.manual_seed(0)
    one = sharpened(GPT(GPTConfig(vocab_size=13, num_layers=1, d_model=32, attention_window=8)))
    ids = torch.randint(13, (1, 20))
    changed = ids.clone()
    changed[0, 4] = (changed[0, 4] + 1) % 13
    moved = ((one(ids) - one(changed)).abs().amax(-1)[0] > 0).nonzero().flatten().tolist()
    assert moved == list(range(4, 12))


@pytest.mark.parametrize("position", [0, 63, 100_000, 10_000_000])
def test_angles_are_right_at_any_position(position: int) -> None:
    config = GPTConfig()
    cos, sin = rotary_angles(torch.tensor([[position]]), config)
    for i in range(config.head_dim // 2):
        angle = math.fmod(position * 10000.0 ** (-2 * i / config.head_dim), 2 * math.pi)
        for half in (i, i + config.head_dim // 2):
            assert abs(cos[0, 0, half].item() - math.cos(angle)) < 1e-5
            assert abs(sin[0, 0, half].item() - math.sin(angle)) < 1e-5


def test_mask_of_four_new_tokens_on_four_cached() -> None:
    config = GPTConfig(num_heads=4, num_kv_heads=4)
    cache = KVCache.create(config, 1, 80)
    mask = cache.geometry(torch.tensor([4]), 4).mask
    assert mask is not None
    assert mask[0, 0, :, :8].int().tolist() == [[1] * 5 + [0] * 3, [1] * 6 + [0] * 2, [1] * 7 + [0], [1] * 8]
    assert not mask[..., 8:].any()


def test_what_a_verification_sees(net: GPT) -> None:
    def logits(ids: list[int]) -> Tensor:
        cache = KVCache.create(SMALL, 1, 16)
        ids_BT = torch.tensor([ids])
        net.hidden(ids_BT[:, :4], cache, cache.geometry(torch.tensor([0]), 4))
        return net.logits(net.hidden(ids_BT[:, 4:], cache, cache.geometry(torch.tensor([4]), 4)))[0]

    base = logits([1, 2, 3, 4, 5, 6, 7, 8])
    last = (logits([1, 2, 3, 4, 5, 6, 7, 9]) - base).abs().amax(-1)
    assert (last[:3] == 0).all() and last[3] > 0
    assert ((logits([0, 2, 3, 4, 5, 6, 7, 8]) - base).abs().amax(-1) > 0).all()


def test_append_rollback_append_equals_no_cache(net: GPT) -> None:
    """Random forwards with random rollbacks, far past the ring's end: never a trace of what was rolled back."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(13, (1, 90), generator=generator)
    whole = net(ids)[0]
    cache, length = KVCache.create(SMALL, 1, ring_slots(SMALL, 4)), 0
    while length < 80:
        tokens = int(torch.randint(1, 6, (1,), generator=generator))
        kept = int(torch.randint(1, tokens + 1, (1,), generator=generator))
        fed = ids[:, length : length + tokens].clone()
        fed[:, kept:] = (fed[:, kept:] + 3) % 13  # rejected drafts
        h = net.hidden(fed, cache, cache.geometry(torch.tensor([length]), tokens))
        torch.testing.assert_close(net.logits(h)[0, :kept], whole[length : length + kept], atol=1e-4, rtol=1e-4)
        length += kept


def test_rows_of_different_length(net: GPT) -> None:
    ids = torch.randint(13, (2, 30))
    whole = net(ids)
    cache = KVCache.create(SMALL, 2, 16)
    start = torch.tensor([0, 0])
    for _ in range(6):
        fed = torch.stack([ids[row, s : s + 2] for row, s in enumerate(start.tolist())])
        h = net.hidden(fed, cache, cache.geometry(start, 2))
        for row, s in enumerate(start.tolist()):
            torch.testing.assert_close(net.logits(h)[row], whole[row, s : s + 2], atol=1e-4, rtol=1e-4)
        start = start + torch.tensor([2, 1])


def test_rings_too_small_are_refused(net: GPT) -> None:
    with pytest.raises(ValueError, match="attention_window 8"):
        KVCache.create(SMALL, 1, 7)
    cache = KVCache.create(SMALL, 1, 10)
    with pytest.raises(ValueError, match="at most 3 tokens a forward, got 4"):
        cache.geometry(torch.tensor([0]), 4)
    for gamma in range(1, 20):
        assert ring_slots(SMALL, gamma) >= SMALL.attention_window + gamma + 1
