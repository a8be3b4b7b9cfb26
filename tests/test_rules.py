"""Accept rules: who keeps the law, and who keeps more drafts."""

from dataclasses import replace

import pytest
import torch
from conftest import small_target
from torch import Tensor

from specmtp.analysis.rule_comparison import Compared, compare_rules
from specmtp.analysis.sampling_check import g_test_p
from specmtp.decoding.accept import AcceptRule, Proposal, Verdict, accept
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.noise import Noise
from specmtp.decoding.rules import RULES
from specmtp.decoding.sampling import Sampler, sample

ROWS = 200_000


def tables(seed: int, size: int = 3) -> tuple[Tensor, Tensor]:
    """Next-symbol laws of target and drafter by the symbol before."""
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(size, size, generator=generator).mul(1.5).softmax(-1) for _ in "pq")
    return p, q


def played(name: str, p: Tensor, q: Tensor, gamma: int, seed: int = 0) -> tuple[Verdict, Proposal, Tensor]:
    """Rounds behind symbol 0, and the tokens [B, N] they emit, filled up by plain decoding."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(ROWS, 3 * gamma + 2, generator=generator)
    noise = Noise.split(uniform[:, : 2 * gamma + 1])
    last, drafts, qs, ps = torch.zeros(ROWS, dtype=torch.long), [], [], [p[torch.zeros(ROWS, dtype=torch.long)]]
    for i in range(gamma):
        qs.append(q[last])
        last = sample(qs[-1], noise.draft_v_BG[:, i])
        drafts.append(last)
        ps.append(p[last])
    proposal = Proposal(torch.stack(drafts, 1), torch.stack(qs, 1), torch.full((ROWS,), gamma))
    verdict = RULES[name].accept(torch.stack(ps, 1), proposal, noise)
    tokens: list[Tensor] = []
    for i in range(gamma + 1):
        before = tokens[-1] if tokens else torch.zeros(ROWS, dtype=torch.long)
        plain = sample(p[before], uniform[:, 2 * gamma + 1 + i])
        own = torch.where(verdict.num_accepted_B == i, verdict.next_token_B, plain)
        tokens.append(torch.where(verdict.num_accepted_B > i, proposal.drafts_BG[:, min(i, gamma - 1)], own))
    return verdict, proposal, torch.stack(tokens, 1)


def law_p_value(tokens_BN: Tensor, p: Tensor) -> float:
    """Of the joint law of all symbols, against the product of the target's."""
    size = len(p)
    cell_B, law = torch.zeros(len(tokens_BN), dtype=torch.long), p[0].double()
    for i in range(tokens_BN.shape[1]):
        cell_B = cell_B * size + tokens_BN[:, i]
        law = (law[:, None] * p.double().repeat(len(law) // size, 1)).flatten() if i else law
    counts = torch.bincount(cell_B, minlength=len(law)).numpy()
    return g_test_p(counts, (law / law.sum()).numpy())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_lossless_rules_keep_the_joint_law_and_the_lossy_one_does_not(name: str, gamma: int) -> None:
    p, q = tables(gamma)
    p_value = law_p_value(played(name, p, q, gamma)[2], p)
    assert (p_value > 1e-6) == RULES[name].lossless, p_value


@pytest.mark.parametrize("gamma", [2, 4])
def test_block_verification_keeps_no_fewer_drafts_than_token_by_token(gamma: int) -> None:
    for seed in range(4):
        p, q = tables(seed)
        block, token, exact = (
            played(name, p, q, gamma)[0].num_accepted_B.double() for name in ("block", "token", "exact_match")
        )
        margin = 6 * float((block - token).std()) / ROWS**0.5
        assert block.mean() > token.mean() - margin
        assert exact.mean() < token.mean()


def test_the_example_of_the_paper() -> None:
    """Two symbols, p = (1/3, 2/3), q = (2/3, 1/3), two drafts: 10/9 accepted token by token, 11/9 as a block."""
    p, q = torch.tensor([1 / 3, 2 / 3]).expand(2, 2), torch.tensor([2 / 3, 1 / 3]).expand(2, 2)
    for name, accepted in (("token", 10 / 9), ("block", 11 / 9), ("exact_match", 4 / 9 + 16 / 81)):
        assert float(played(name, p, q, 2)[0].num_accepted_B.double().mean()) == pytest.approx(accepted, abs=0.008)


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name].by_place])
def test_beta_is_the_chance_of_an_examined_draft(name: str) -> None:
    verdict, _, _ = played(name, *tables(5), 3)
    for i in range(3):
        examined_B = verdict.num_accepted_B >= i
        accepted_B = verdict.num_accepted_B[examined_B] > i
        beta_B = verdict.beta_BG[examined_B, i].double()
        spread = float((beta_B * (1 - beta_B)).sum() ** 0.5)
        assert abs(float(accepted_B.sum() - beta_B.sum())) < 5 * spread + 1e-4 * len(beta_B)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("gamma", [1, 3])
def test_at_temperature_0_all_rules_are_one(name: str, gamma: int) -> None:
    p, q = (torch.eye(3)[torch.tensor(order)] for order in ([1, 2, 0], [1, 2, 2]))
    verdict, _, tokens = played(name, p, q, gamma)
    assert torch.equal(verdict.num_accepted_B, torch.full((ROWS,), min(gamma, 2)))
    assert torch.equal(tokens, torch.tensor([1, 2, 0, 1])[: gamma + 1].expand(ROWS, -1))


@pytest.mark.parametrize("name", RULES)
def test_drafts_that_do_not_count_are_not_examined(name: str) -> None:
    """A row without drafts emits one token of p's, whatever lies in the drafts' places."""
    p, q = tables(1)
    rows = 200_000
    noise = Noise.split(torch.rand(rows, 5, generator=torch.Generator().manual_seed(0)))
    proposal = Proposal(
        torch.zeros(rows, 2, dtype=torch.long), q[None, :2].expand(rows, -1, -1), torch.zeros(rows).long()
    )
    verdict = RULES[name].accept(p[None].expand(rows, -1, -1), proposal, noise)
    assert not verdict.num_accepted_B.any()
    assert g_test_p(torch.bincount(verdict.next_token_B, minlength=3).numpy(), p[0].double().numpy()) > 1e-6


def test_rules_are_compared_at_the_same_states() -> None:
    net, prompts = small_target(), [[1, 2, 3], [4, 5], [6], [7, 8]] * 8
    rules = ["token", "block", "exact_match", "typical"]
    found = compare_rules(net.gpt, MTPDrafter(net, 4), Sampler(), rules, prompts, 20_000, seed=0)
    by_name = {gain.rule: gain for gain in found}
    assert [gain.rule for gain in found] == rules and all(gain.rounds == 20_000 for gain in found)
    assert by_name["token"].gain.value == by_name["token"].gain.low == 0
    for gain in found:
        assert gain.gain.value == pytest.approx(gain.tokens.value - by_name["token"].tokens.value)
        assert gain.tokens.low is not None and gain.tokens.low < gain.tokens.value
    assert by_name["block"].gain.low > 0 and by_name["exact_match"].gain.high < 0  # type: ignore[operator]


def test_rows_follow_lossless_rules_by_turns() -> None:
    net = small_target()

    def rule(accepted: int) -> AcceptRule:
        def keep(p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
            verdict = accept(p_BNV, proposal, noise)
            return replace(verdict, num_accepted_B=torch.full_like(verdict.num_accepted_B, accepted))

        return keep

    compared = Compared({"a": rule(0), "b": rule(1), "c": rule(2)}, ["a", "c"])
    decoder = Decoder(net.gpt, MTPDrafter(net, 3), Sampler(), compared)
    trace = decoder.run_rounds(decoder.prefill([[1, 2]] * 4)[0], 2, seed=0)
    assert trace.num_accepted_RB.tolist() == [[0, 2, 0, 2]] * 2
    assert torch.stack(compared.accepted_RKB)[:, :, 0].tolist() == [[0, 1, 2]] * 2
