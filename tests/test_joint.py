"""The law of pairs: right decoders keep it, and it shows faults that one symbol does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TableGPT, make_drafter, small_draft, small_target
from scipy import stats
from wrong_decoders import OffByOne, OtherTemperature, inflated

from specmtp.analysis.joint_check import JointCheck, check_joint, pair_law, pairs, uncertain_contexts
from specmtp.checkpoint import load
from specmtp.decoding.drafters import DraftModel
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.uncached import UncachedDecoder
from specmtp.ledger.arms import YARDSTICK, Arm
from specmtp.ledger.checks import JOINT_CONTEXTS, JointLaws, run_checks

CONTEXT = [1, 2, 3, 4, 5]
PRETRAINED = Path(__file__).parent.parent / "pretrained"


def checked(decoder: Any, draws: int = 20_000, seed: int = 0, batch: int | None = None) -> JointCheck:
    law = pair_law(decoder.target, decoder.sampler, CONTEXT, draws, seed)
    return check_joint(decoder, law, seed, 40, batch)


def test_the_law_of_pairs_is_the_product_of_conditionals() -> None:
    table: Any = TableGPT([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    law = pair_law(table, Sampler(), [0], 100_000, 0)
    wanted = [[0.36, 0.18, 0.06], [0.06, 0.15, 0.09], [0.01, 0.02, 0.07]]
    assert law.p_C[:9].reshape(3, 3) == pytest.approx(np.array(wanted), abs=1e-6) and law.p_C[9] == 0
    assert law.cells(np.array([2, 0]), np.array([1, 2])).tolist() == [7, 2]


def test_rare_first_symbols_share_a_cell() -> None:
    table: Any = TableGPT([[0.9, 0.09, 0.01], [1 / 3] * 3, [1 / 3] * 3])
    law = pair_law(table, Sampler(), [0], 100, 0)  # 90, 9 and 1 expected
    assert len(law.p_C) == 7 and law.p_C[6] == pytest.approx(0.01) and law.p_C.sum() == pytest.approx(1)
    assert law.cells(np.array([1, 2, 2]), np.array([0, 0, 1])).tolist() == [3, 6, 6]


def test_the_second_symbol_is_the_second_rounds_where_the_first_round_gave_one() -> None:
    one, two = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[7, 8, 9], [10, 11, 12]])
    first, second = pairs(one, torch.tensor([2, 1]), two)
    assert (first.tolist(), second.tolist()) == ([1, 4], [2, 10])
    first, second = pairs(torch.tensor([[1]]), torch.tensor([1]), torch.tensor([[2]]))
    assert (first.tolist(), second.tolist()) == ([1], [2])


def test_pairs_across_rounds_of_many_drafts_leave_the_context_whole() -> None:
    """Two rounds of eight drafts write over slots that the context needs, were it played from twice."""
    target = small_target()
    for drafter in (DraftModel(small_draft(), 8), MTPDrafter(target, 4)):
        decoder = Decoder(target.gpt, drafter)
        law = pair_law(decoder.target, decoder.sampler, CONTEXT * 4, 6000, 0)
        assert check_joint(decoder, law, 0, 40).passed


@pytest.mark.parametrize("kind", ["plain", "draft", "mtp"])
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(0.7, top_k=5), Sampler(0)])
def test_right_decoders_keep_it(kind: str, sampler: Sampler) -> None:
    target = small_target(depth=2)
    assert checked(Decoder(target.gpt, make_drafter(kind, target, small_draft()), sampler)).passed


@pytest.mark.parametrize("method", ["plain", "draft", "mtp"])
def test_so_do_twins_without_a_cache(method: str) -> None:
    target = small_target()
    twin = UncachedDecoder(target, method, 0 if method == "plain" else 1, Sampler(), small_draft())
    assert checked(twin, 600, batch=1).passed


def test_p_values_of_a_right_decoder_are_uniform() -> None:
    decoder = Decoder(small_target().gpt, DraftModel(small_draft(), 2))
    law = pair_law(decoder.target, decoder.sampler, CONTEXT, 2000, 0)
    values = [check_joint(decoder, law, seed, 1).p_value for seed in range(40)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


class StaleCache(Decoder):
    """Its target's cache is rolled by a slot after every round: the first symbol is right, the next round's is not."""

    def play(self, state: Any, noise: Any, active_B: torch.Tensor) -> Any:
        rings = [ring.clone() for ring in (*state.cache.keys, *state.cache.values)]
        after, played = super().play(state, noise, active_B)
        fresh = after.__class__(**{**vars(after), "cache": after.cache.expand(1)})
        for ring in (*fresh.cache.keys, *fresh.cache.values):
            ring.copy_(ring.roll(1, -1))
        for ring, old in zip((*state.cache.keys, *state.cache.values), rings, strict=True):
            ring.copy_(old)
        return fresh, played


def test_a_cache_left_wrong_shows_in_pairs_alone() -> None:
    target = small_target()
    wrong = StaleCache(target.gpt, DraftModel(small_draft(), 1))
    context_only = pair_law(target.gpt, wrong.sampler, CONTEXT, 20_000, 0)
    found = check_joint(wrong, context_only, 0, 40)
    assert not found.passed and found.p_value < 1e-8


@pytest.fixture(scope="module")
def pretrained() -> tuple[Any, Any, list[list[int]]]:
    target, draft = (load(PRETRAINED / role / "checkpoints" / "last.ckpt") for role in ("main", "draft"))
    text = Decoder(target.net.gpt, DraftModel(draft.net.gpt, 1)).generate([[0]] * 8, 520, seed=1).tokens
    windows = [row[i : i + 64] for row in text for i in range(0, 448, 64)]
    return target.net, draft.net.gpt, uncertain_contexts(target.net.gpt, Sampler(), windows, 3)


@pytest.mark.parametrize(
    "method, fault",
    [(m, f) for m in ("draft", "mtp") for f in (None, "ratio", "cache")] + [("draft", "scores")],
)
def test_planted_faults_fail_on_trained_models(method: str, fault: str | None, pretrained: Any) -> None:
    net, draft, contexts = pretrained
    drafter: Any = DraftModel(draft, 1) if method == "draft" else MTPDrafter(net, 1)
    decoder = Decoder(net.gpt, drafter)
    if fault == "ratio":
        decoder = Decoder(net.gpt, drafter, accept_rule=inflated)
    elif fault == "cache":
        decoder = OffByOne(net.gpt, drafter)
    elif fault == "scores":
        decoder = Decoder(net.gpt, OtherTemperature(draft, 1))
    laws = [pair_law(net.gpt, decoder.sampler, context, 20_000, 0) for context in contexts]
    found = [check_joint(decoder, law, i, 40) for i, law in enumerate(laws)]
    assert all(check.passed for check in found) == (fault is None)


def test_every_arm_of_a_bench_is_checked_in_several_contexts() -> None:
    target, draft = small_target(), small_draft()
    arms = {
        YARDSTICK: Decoder(target.gpt, make_drafter("plain", target, draft)),
        Arm("draft", 1): Decoder(target.gpt, DraftModel(draft, 1), accept_rule=inflated),
        Arm("draft", 2, "uncached"): UncachedDecoder(target, "draft", 2, Sampler(), draft),
    }
    contexts = torch.randint(13, (30, 7), generator=torch.Generator().manual_seed(0)).tolist()
    checks = run_checks(arms, [], contexts, 100_000, 0, 1, lambda _: None)
    assert [len(found) for found in checks.joint.values()] == [JOINT_CONTEXTS, JOINT_CONTEXTS, 1]
    assert {check.draws for found in checks.joint.values() for check in found} == {2_500, 200}
    assert checks.joint[Arm("draft", 2, "uncached")][0].context == contexts[0][-5:]
    assert all(check.passed for check in checks.joint[YARDSTICK]) and not checks.passed(Arm("draft", 1))


def test_laws_are_made_once() -> None:
    yardstick = Decoder(small_target().gpt, make_drafter("plain", None, None))
    laws = JointLaws(yardstick, [[1, 2, 3]] * 6, 0)
    assert laws.of(Arm("draft", 1), 500)[0] is laws.of(Arm("mtp", 4), 500)[0]
