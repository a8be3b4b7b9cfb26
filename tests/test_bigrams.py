"""The bigram check: right decoders pass, wrong ones fail, and chance seldom does."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import small_draft, small_target
from wrong_decoders import Forgetful, inflated

from specmtp.analysis.bigram_check import check_bigrams, count_bigrams, sample_rows, tokens_a_row
from specmtp.analysis.sampling_check import check_sampling
from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import AnyDecoder, Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import YARDSTICK, Arm
from specmtp.ledger.checks import Checks, bigram_arms, run_checks

PROMPT = [1, 2, 3, 4]


@pytest.fixture(scope="module")
def yardstick() -> list[list[int]]:
    return sample_rows(Decoder(small_target().gpt, NoDrafter(13)), PROMPT, 200_000, 1000, seed=0)


def test_right_decoders_pass(yardstick: list[list[int]]) -> None:
    target = small_target()
    for drafter in (DraftModel(small_draft(), 1), MTPDrafter(target, 3)):
        rows = sample_rows(Decoder(target.gpt, drafter), PROMPT, 100_000, 1000, seed=7)
        check = check_bigrams(yardstick, rows, 13, 0)
        assert check.passed and check.tokens == 100_000 and 0 < check.tv < check.tv_limit < 0.03


@pytest.mark.parametrize("fault", ["inflated", "temperature", "forgetful"])
def test_wrong_decoders_fail(yardstick: list[list[int]], fault: str) -> None:
    target, drafter = small_target(), DraftModel(small_draft(), 3)
    decoder, tokens = {
        "inflated": (Decoder(target.gpt, drafter, accept_rule=inflated), 200_000),
        "temperature": (Decoder(target.gpt, drafter, Sampler(0.8)), 100_000),
        "forgetful": (Forgetful(target.gpt, drafter), 50_000),
    }[fault]
    assert not check_bigrams(yardstick, sample_rows(decoder, PROMPT, tokens, 1000, seed=7), 13, 0).passed


def test_only_long_texts_show_what_goes_wrong_late(yardstick: list[list[int]]) -> None:
    """The sampling check plays single rounds after a context, and sees nothing of it."""
    wrong = Forgetful(small_target().gpt, DraftModel(small_draft(), 1))
    assert check_sampling(wrong, PROMPT, 20_000, 0, num_checks=4).passed
    assert not check_bigrams(yardstick, sample_rows(wrong, PROMPT, 50_000, 1000, seed=7), 13, 0).passed


def chain_rows(num_rows: int, num_tokens: int, generator: np.random.Generator) -> list[list[int]]:
    """Texts of one Markov chain that keeps to a symbol for long, so that a text's bigrams depend on each other."""
    table = 0.8 * np.eye(6) + 0.2 * np.random.default_rng(0).dirichlet(np.ones(6), 6)
    row = np.zeros(num_rows, dtype=int)
    rows = []
    for _ in range(num_tokens):
        row = (generator.random((num_rows, 1)) > table[row].cumsum(1)[:, :-1]).sum(1)
        rows.append(row)
    return np.stack(rows, 1).tolist()


def test_false_alarms_are_rare() -> None:
    """Of 300 checks of equal laws none is above the limit, and the limit is no higher than it says."""
    generator = np.random.default_rng(0)
    checks = [
        check_bigrams(chain_rows(60, 60, generator), chain_rows(60, 60, generator), 6, seed, deals=100)
        for seed in range(300)
    ]
    assert all(check.passed for check in checks)
    tv = np.array([check.tv for check in checks])
    assert np.mean([c.tv_limit for c in checks]) == pytest.approx(tv.mean() + 6 * tv.std(), rel=0.15)


def test_texts_that_cannot_differ_pass() -> None:
    """As of top-k 1: the noise floor is 0; and where a single text differs, every deal has the same distance."""
    same = [[0, 1, 2, 0, 1]] * 50
    assert check_bigrams(same, same[:33], 3, 0).passed
    assert check_bigrams(same, [*same[1:], [0, 1, 2, 0, 2]], 3, 0).passed
    assert not check_bigrams(same, [[0, 1, 2, 0, 2]] * 50, 3, 0).passed


@pytest.mark.parametrize("num_symbols", [13, 256, 50_257])
def test_bigrams_are_counted_once_each(num_symbols: int) -> None:
    rows = torch.randint(num_symbols, (5, 40), generator=torch.Generator().manual_seed(0)).tolist()
    rows[0] = [num_symbols - 1] * 40
    counts_RC = count_bigrams(rows, num_symbols)
    assert counts_RC.sum(1).tolist() == [39] * 5 and counts_RC[0].max() == 39
    different = len({pair for row in rows for pair in pairwise(row)})
    assert counts_RC.shape[1] == pytest.approx(different, abs=0 if num_symbols <= 256 else 2)


class Batched(Decoder):
    """Built for three rows, as a compiled decoder is."""

    batch = 3


def test_rows_of_a_decoder_of_fixed_batch_are_independent() -> None:
    target = small_target()
    rows = sample_rows(Batched(target.gpt, NoDrafter(13)), PROMPT, 320, 43, seed=0)
    assert len(rows) == 8 and {len(row) for row in rows} == {43} and len(set(map(tuple, rows))) == 8
    assert (tokens_a_row(200_000), tokens_a_row(1)) == (1000, 2)


def test_the_bench_checks_compiled_arms_and_gamma_1() -> None:
    arms = [Arm("draft", g, b, n) for b in ("eager", "compile", "uncached") for g in (1, 2) for n in (1, 4)]
    compiled = [Arm("draft", g, "compile") for g in (1, 2)]
    assert bigram_arms(arms, Sampler()) == [YARDSTICK, Arm("draft", 1), *compiled]
    assert bigram_arms(arms, Sampler(0)) == [] == bigram_arms([YARDSTICK, Arm("draft", 2)], Sampler())


def test_an_arm_with_wrong_bigrams_does_not_pass() -> None:
    target, drafter = small_target(), DraftModel(small_draft(), 1)
    arm, told = Arm("draft", 1), []

    def checks_of(decoder: AnyDecoder) -> Checks:
        plain = Decoder(target.gpt, NoDrafter(13))
        return run_checks({YARDSTICK: plain, arm: decoder}, [], [PROMPT] * 200, 40_000, 0, 1, told.append)

    right, wrong = checks_of(Decoder(target.gpt, drafter)), checks_of(Forgetful(target.gpt, drafter))
    assert list(right.bigrams) == list(wrong.bigrams) == [arm]
    assert right.passed(arm) and wrong.sampling[arm].passed and not wrong.passed(arm)
    assert told[-2:] == ["bigrams plain, 40000 tokens", "bigrams draft γ=1, 40000 tokens"]
