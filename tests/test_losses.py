"""The MTP objective: shifted once, never wrapped, each depth with its own count."""

import math

import pytest
import torch
from conftest import SMALL, small_target
from torch import Tensor

from specmtp.data.windows import PAD
from specmtp.nn.cache import causal_geometry
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MTP, MultiTokenGPT
from specmtp.training.losses import depth_losses, mean, total_loss
from specmtp.training.modules import GPTModule
from specmtp.training.optim import OptimConfig, lr_ratio

IDS = torch.arange(10, 17)[None]  # a window of 7 ids: T = 6 inputs


def sure_of(targets: list[int], size: int = 100) -> Tensor:
    logits = torch.zeros(1, len(targets), size)
    logits[0, range(len(targets)), targets] = 100.0
    return logits


def test_targets_are_shifted_once() -> None:
    right = [sure_of(list(range(11, 17))), sure_of(list(range(12, 17))), sure_of(list(range(13, 17)))]
    losses = depth_losses(right, IDS)
    assert {name: (round(total.item(), 6), int(count)) for name, (total, count) in losses.items()} == {
        "main": (0.0, 6), "mtp1": (0.0, 5), "mtp2": (0.0, 4),
    }  # fmt: skip
    for wrong in ([11, 12, 13, 14, 15], [13, 14, 15, 16, 10], [13, 14, 15, 16, 0]):
        total, _ = depth_losses([right[0], sure_of(wrong)], IDS)["mtp1"]
        assert total > 400


def test_first_token_is_no_target_of_depth_1() -> None:
    logits = [torch.randn(1, 6, 100), torch.randn(1, 5, 100)]
    changed = IDS.clone()
    changed[0, 0] = 99
    assert depth_losses(logits, IDS)["mtp1"][0] == depth_losses(logits, changed)["mtp1"][0]


def uniform(depths: int, size: int = 4) -> list[Tensor]:
    return [torch.zeros(1, 6 - k, size, requires_grad=True) for k in range(depths + 1)]


@pytest.mark.parametrize("depths", [1, 2])
def test_weight_of_the_mean_over_depths(depths: int) -> None:
    losses = depth_losses(uniform(depths), IDS % 4)
    assert total_loss(losses, 0.3).item() == pytest.approx(1.802183, abs=1e-5)
    assert all(mean(pair).item() == pytest.approx(math.log(4)) for pair in losses.values())


def test_worked_example_of_the_mean() -> None:
    one = torch.tensor(1)
    losses = {"main": (torch.tensor(2.0), one), "mtp1": (torch.tensor(2.5), one), "mtp2": (torch.tensor(3.1), one)}
    assert total_loss(losses, 0.3).item() == pytest.approx(2.84)


def test_weight_zero_is_the_plain_loss_and_gradient() -> None:
    net = small_target(depth=1).train().requires_grad_(True)
    ids = torch.randint(13, (4, 9))
    net.zero_grad()
    total_loss(depth_losses(net(ids[:, :-1]), ids), 0.0).backward()
    with_mtp = {n: p.grad for n, p in net.gpt.named_parameters()}
    plain = MultiTokenGPT(SMALL, 0)
    plain.gpt.load_state_dict(net.gpt.state_dict())
    total_loss(depth_losses(plain(ids[:, :-1]), ids), 0.3).backward()
    for name, parameter in plain.gpt.named_parameters():
        assert torch.equal(parameter.grad, with_mtp[name]), name  # type: ignore[arg-type]
    assert not list(plain.mtp.parameters())


@pytest.mark.parametrize("ids", [torch.tensor([[1, 2]]), torch.tensor([[1, 2, PAD, PAD]])])
def test_no_valid_target_is_zero_with_zero_gradient(ids: Tensor) -> None:
    net = small_target(depth=1).requires_grad_(True)
    losses = depth_losses(net(ids[:, :-1].clamp(min=0)), ids)
    loss = total_loss(losses, 0.3)
    loss.backward()
    assert loss.isfinite() and loss.item() == pytest.approx(mean(losses["main"]).item())
    for parameter in net.mtp.parameters():
        assert parameter.grad is None or parameter.grad.abs().max() == 0


def test_depth_1_sees_one_token_more_and_no_further() -> None:
    net = small_target(depth=2)
    ids = torch.randint(13, (1, 8))
    changed = ids.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 13
    moved = [(a - b).abs().amax(-1)[0] > 0 for a, b in zip(net(ids), net(changed), strict=True)]
    assert [m.nonzero()[0].item() for m in moved] == [5, 4, 3]


def test_depths_read_hidden_state_and_embedding_by_the_table() -> None:
    """Depth 1 at row i joins h_i with the embedding of token i+1; depth 2 depth 1's row i with that of i+2."""
    net = small_target(depth=2)
    gpt, ids = net.gpt, torch.randint(13, (1, 6))
    h = gpt.hidden(ids)
    for k in (1, 2):
        module = net.mtp.at(k)
        rows = []
        for i in range(6 - k):
            pair = torch.cat([module.hidden_norm(h[:, i]), module.embed_norm(gpt.embed_tokens(ids[:, i + k]))], -1)
            rows.append(module.proj(pair))
        h = module.block(torch.stack(rows, 1), causal_geometry(6 - k, SMALL, ids.device))
        torch.testing.assert_close(net(ids)[k], gpt.logits(h))


def test_sharing() -> None:
    net = MultiTokenGPT(SMALL, 3, mtp_shared=True)
    assert net.mtp.at(1) is net.mtp.at(3)
    assert sum(p.numel() for p in net.mtp.parameters()) == sum(p.numel() for p in MTP(SMALL, 1).parameters())
    names = [n for n, _ in net.named_parameters()]
    assert len(names) == len(set(names))
    tables = [p for _, p in net.named_parameters() if p.shape == (SMALL.vocab_size, SMALL.d_model)]
    assert len(tables) == 2  # one embedding, one head, whatever the depth


def test_reference_embedding_table_counts_once() -> None:
    net = MultiTokenGPT(GPTConfig(num_layers=1, d_model=64, num_heads=2, num_kv_heads=1), 2)
    assert sum(p.numel() for n, p in net.named_parameters() if "embed_tokens" in n) == 4160


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"mtp_weight": -1.0}, "got -1"),
        ({"mtp_weight": 0.0}, "control.yaml"),
        ({"mtp_depth": -1}, "got -1"),
        ({"mtp_depth": 1, "mtp_shared": True}, "mtp_depth >= 2"),
    ],
)
def test_configs_that_make_no_sense(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPTModule("abc", GPTConfig(), OptimConfig(), **wrong)


def test_schedule() -> None:
    config = OptimConfig(warmup_steps=10, final_lr_ratio=0.1)
    assert lr_ratio(0, 100, config) == pytest.approx(0.1)
    assert lr_ratio(9, 100, config) == lr_ratio(10, 100, config) == 1.0
    assert lr_ratio(55, 100, config) == pytest.approx(0.55)
    assert lr_ratio(100, 100, config) == lr_ratio(500, 100, config) == pytest.approx(0.1)
    assert lr_ratio(70, 100, OptimConfig(warmup_steps=0, schedule="constant")) == 1.0
