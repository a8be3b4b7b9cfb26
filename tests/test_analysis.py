"""Theory, statistics, and the checks of exactness: that they hold, and that they can fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import small_draft, small_target
from scipy import stats
from wrong_decoders import OffByOne, OtherTemperature, inflated

from specmtp.analysis.exact_acceptance import Agreement, agreement, paired_logits
from specmtp.analysis.exactness import GreedyCheck, causal_difference, compare_greedy
from specmtp.analysis.sampling_check import check_sampling, g_test_p, preferred_p_value, tv_limit
from specmtp.analysis.theory import expected_tokens, theoretical_speedup
from specmtp.data.windows import PAD
from specmtp.decoding.accept import AcceptRule, Proposal, Verdict, accept
from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import Sampler, sample


@pytest.mark.parametrize(
    "alpha, gamma, tokens",
    [
        (0.6, 1, 1.6),
        (0.6, 4, 2.3056),
        (0.6, 8, 2.4748),
        (0.8987, 1, 1.899),
        (0.6757, 8, 2.993),
        (1.0, 4, 5.0),
        (0, 3, 1),
    ],
)
def test_expected_tokens(alpha: float, gamma: int, tokens: float) -> None:
    assert expected_tokens(alpha, gamma) == pytest.approx(tokens, abs=2e-3)


def test_theoretical_speedup() -> None:
    assert theoretical_speedup(0.6, 2, 0.25) == pytest.approx(1.96 / 1.5)
    assert theoretical_speedup(1.0, 4, 0.0) == 5
    assert theoretical_speedup(None, 4, 0.1) is None and theoretical_speedup(0.5, 4, None) is None


@pytest.mark.parametrize("seed", range(5))
def test_goodness_of_fit_is_scipys(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p = np.append(generator.dirichlet(np.full(18, 20)) * (1 - 6 / 5000), [2 / 5000, 4 / 5000])
    count = generator.multinomial(5000, p)
    observed, expected = (np.append(n[:18], n[18:].sum()) for n in (count, 5000 * p))
    wanted = stats.power_divergence(observed, expected, lambda_="log-likelihood").pvalue
    assert g_test_p(count, p) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("rare", [0.001, 0.02, 4.9])
def test_one_rare_symbol_is_no_finding(rare: float) -> None:
    """Alone in its cell a symbol that 20,000 draws hardly expect would be one, should it come once."""
    p = np.array([rare / 20_000, 30 / 20_000, 1 - (rare + 30) / 20_000])
    assert g_test_p(np.array([1, 30, 19_969]), p) > 0.5
    counts = np.random.default_rng(0).multinomial(20_000, p, size=20_000)
    assert min(g_test_p(count, p) for count in counts) > 1e-7


def test_impossible_symbols_have_no_probability() -> None:
    assert g_test_p(np.array([100, 0, 1]), np.array([0.9, 0.1, 0.0])) == 0
    assert g_test_p(np.array([100, 0, 0]), np.array([1.0, 0.0, 0.0])) == 1


def test_noise_floor_holds_direct_samples() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(65))
    limit = tv_limit(p, 20_000, 0)
    draws = np.random.default_rng(1).multinomial(20_000, p, size=2000) / 20_000
    assert (np.abs(draws - p).sum(1) / 2 < limit).all()
    assert limit < 0.05


@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_sampling_check_passes_the_rule_and_fails_a_wrong_one(method: str) -> None:
    target = small_target()
    drafter = DraftModel(small_draft(), 1) if method == "draft" else MTPDrafter(target, 1)
    context = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    right = check_sampling(Decoder(target.gpt, drafter), context, 50_000, 0, num_checks=4)
    assert right.passed and right.tv < right.tv_limit and right.p_value > right.p_limit
    assert right.accepted / right.draws == pytest.approx(right.beta, abs=0.01)
    assert right.tv_draft is not None and right.tv_draft > 5 * right.tv
    assert not check_sampling(
        Decoder(target.gpt, drafter, accept_rule=inflated), context, 50_000, 0, num_checks=4
    ).passed


@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_many_contexts_see_a_wrong_ratio(method: str) -> None:
    target = small_target()
    drafter = DraftModel(small_draft(), 2) if method == "draft" else MTPDrafter(target, 2)
    contexts = torch.randint(13, (40, 9), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.inference_mode():
        right = preferred_p_value(Decoder(target.gpt, drafter), contexts, 20_000, 0)
        wrong = preferred_p_value(Decoder(target.gpt, drafter, accept_rule=inflated), contexts, 20_000, 0)
        greedy = preferred_p_value(Decoder(target.gpt, drafter, Sampler(0)), contexts, 200, 0)
    assert right > 1e-3 and wrong < 1e-6 and greedy == 1.0


def test_the_p_value_of_preferred_tokens_is_uniform() -> None:
    """Over seeds, a right decoder's p-values spread as p-values do."""
    decoder = Decoder(small_target().gpt, DraftModel(small_draft(), 1))
    contexts = torch.randint(13, (40, 9), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.inference_mode():
        values = [preferred_p_value(decoder, contexts, 1000, seed) for seed in range(60)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def greedy_bonus(p_BNV: torch.Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """An accept rule whose token after full acceptance is the most probable one."""
    right = accept(p_BNV, proposal, noise)
    best_B = p_BNV[:, -1].argmax(-1)
    return replace(
        right, next_token_B=torch.where(right.num_accepted_B == proposal.num_drafts_B, best_B, right.next_token_B)
    )


def no_later_residual(p_BNV: torch.Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """An accept rule that draws from p itself after a rejection, but for the first place."""
    right = accept(p_BNV, proposal, noise)
    from_p = sample(p_BNV.gather(1, right.num_accepted_B[:, None, None].expand(-1, 1, 13))[:, 0], noise.emit_v_B)
    return replace(right, next_token_B=torch.where(right.num_accepted_B > 0, from_p, right.next_token_B))


@pytest.mark.parametrize("rule", [greedy_bonus, no_later_residual])
@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_sampling_check_sees_faults_behind_the_first_token(method: str, rule: AcceptRule) -> None:
    target = small_target()
    drafter = DraftModel(small_draft(), 3) if method == "draft" else MTPDrafter(target, 3)
    right = check_sampling(Decoder(target.gpt, drafter), [1, 2, 3, 4], 20_000, 0, num_checks=4)
    wrong = check_sampling(Decoder(target.gpt, drafter, accept_rule=rule), [1, 2, 3, 4], 20_000, 0, num_checks=4)
    assert right.passed and not wrong.passed
    assert wrong.p_value >= wrong.p_limit  # the first token alone shows nothing


def test_sampling_check_sees_a_draft_scored_at_another_temperature() -> None:
    target, draft = small_target(), small_draft()
    assert not check_sampling(
        Decoder(target.gpt, OtherTemperature(draft, 1)), [1, 2, 3, 4], 50_000, 0, num_checks=4
    ).passed


def test_greedy_check_sees_a_cache_off_by_one() -> None:
    target = small_target()
    decoder = Decoder(target.gpt, DraftModel(small_draft(), 2), Sampler(0))
    plain = Decoder(target.gpt, NoDrafter(13), Sampler(0))
    prompts = [[1, 2, 3], [4, 5]]
    with torch.inference_mode():
        wanted = plain.generate(prompts, 60).tokens
        right = decoder.generate(prompts, 60).tokens
        assert compare_greedy(target.gpt, prompts, wanted, right) == GreedyCheck(2, 60, 2, None, 1e-5)
        wrong = OffByOne(target.gpt, decoder.drafter, Sampler(0)).generate(prompts, 60).tokens
    check = compare_greedy(target.gpt, prompts, wanted, wrong)
    assert not check.passed and check.first_divergence is not None and check.first_divergence.gap > 1e-5


def test_a_divergence_at_a_tie_passes_and_is_reported() -> None:
    target = small_target()
    with torch.no_grad():
        target.gpt.lm_head.weight[3] = target.gpt.lm_head.weight[7]
    decoder = Decoder(target.gpt, NoDrafter(13), Sampler(0))
    for start in range(13):
        tokens = decoder.generate([[start]], 30).tokens[0]
        if 3 in tokens:
            place = tokens.index(3)
            other = [*tokens[:place], 7, *tokens[place + 1 :]]
            check = compare_greedy(target.gpt, [[start]], [tokens], [other])
            assert check.passed and check.identical == 0
            assert check.first_divergence is not None and check.first_divergence.position == place
            return
    pytest.fail("no tie was met")


def test_causal_difference_can_fail() -> None:
    target = small_target().gpt
    ids = torch.randint(13, (64,))
    assert causal_difference(target, ids) <= 1e-5

    class Peeking(torch.nn.Module):
        def __call__(self, ids_BT: torch.Tensor) -> torch.Tensor:
            return target(ids_BT.flip(1))

    assert causal_difference(Peeking(), ids) > 1e-2  # type: ignore[arg-type]


def test_exact_acceptance_of_equal_and_other_models() -> None:
    target, windows = small_target(depth=2), torch.randint(13, (5, 9))
    same = agreement(paired_logits(target, target.gpt, windows)["draft"], Sampler())
    assert (same.alpha_exact, same.top1_agreement, same.positions) == (pytest.approx(1.0), 1.0, 40)
    other = agreement(paired_logits(target, small_draft(), windows)["draft"], Sampler())
    p, q = target.gpt(windows[:, :-1]).softmax(-1), small_draft()(windows[:, :-1]).softmax(-1)
    assert other.beta_sum == pytest.approx(float((1 - (p - q).abs().sum(-1) / 2).sum()), rel=1e-5)
    assert other.same_best == int((p.argmax(-1) == q.argmax(-1)).sum())
    pairs = paired_logits(target, None, windows)
    assert {name: len(p) for name, (p, _) in pairs.items()} == {"mtp": 35, "mtp2": 30}
    # depth 1 at row i and the main model at row i + 1 predict the same token
    main, depth, _ = target(windows[:, :-1])
    by_hand = sum(
        float(torch.minimum(main[b, i + 1].softmax(-1), depth[b, i].softmax(-1)).sum())
        for b in range(5)
        for i in range(7)
    )
    assert agreement(pairs["mtp"], Sampler()).beta_sum == pytest.approx(by_hand, rel=1e-5)


def test_only_predicted_tokens_count() -> None:
    target, windows = small_target(), torch.randint(13, (3, 9))
    whole = agreement(paired_logits(target, small_draft(), windows)["draft"], Sampler())
    head = agreement(paired_logits(target, small_draft(), windows[:, :5])["draft"], Sampler())
    tail = agreement(paired_logits(target, small_draft(), windows, first=5)["draft"], Sampler())
    assert (head + tail).positions == whole.positions == 24 and tail.positions == 12
    assert (head + tail).beta_sum == pytest.approx(whole.beta_sum, rel=1e-5)
    windows[:, 6:] = PAD
    assert agreement(paired_logits(target, None, windows, first=5)["mtp"], Sampler()).positions == 3


def test_at_temperature_0_alpha_is_agreement_of_the_best() -> None:
    pair = paired_logits(small_target(), small_draft(), torch.randint(13, (5, 9)))["draft"]
    greedy = agreement(pair, Sampler(0))
    assert greedy.alpha_exact == greedy.top1_agreement == agreement(pair, Sampler(0.7)).top1_agreement
    assert Agreement().alpha_exact is None and Agreement().top1_agreement is None
