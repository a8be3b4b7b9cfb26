"""Where the time goes and which gamma pays: parts, waterfall, planner."""

from typing import Any

import pytest
import torch
from conftest import make_drafter, small_draft, small_target

from specmtp.analysis.planner import plan, tokens_a_round
from specmtp.analysis.theory import theoretical_speedup
from specmtp.analysis.waterfall import waterfall, waterfall_json
from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.ngram import NGramDrafter
from specmtp.decoding.trace import Counts
from specmtp.ledger.arms import Arm
from specmtp.ledger.cells import plan_cells
from specmtp.ledger.measure import time_arms
from specmtp.ledger.parts import PARTS, RoundParts
from specmtp.ledger.plan import calibrate, planner_json, pooled_rates
from specmtp.ledger.timing import WallClock

COSTS = {"draft": 0.7, "verify": 1.5, "accept": 0.2, "cache": 0.1, "host": 0.3}


def test_the_terms_sum_up_to_the_clock_and_begin_with_theory() -> None:
    found = waterfall(2, 0.8, 0.25, 2.3, 1.0, COSTS, 1.25)
    terms = [getattr(found, n) for n in ("theory", "positions", "verify", "drafting", "accept", "host", "unexplained")]
    assert sum(terms) == pytest.approx(found.measured) == pytest.approx(1.25)
    assert 1 / found.theory == pytest.approx(theoretical_speedup(0.8, 2, 0.25))
    assert found.theory + found.positions == pytest.approx(1.5 / 2.3)
    assert found.verify == pytest.approx(0.5 / 2.3) and found.drafting == pytest.approx(0.2 / 2.3)
    assert found.accept == pytest.approx(0.3 / 2.3) and found.host == pytest.approx(0.3 / 2.3)
    assert found.unexplained == pytest.approx(1.25 - 2.8 / 2.3)
    assert found.unexplained_share == pytest.approx(abs(1.25 - 2.8 / 2.3) / 1.25)
    assert waterfall_json(found)["measured"] == pytest.approx(1.25e6)


def test_plain_decoding_has_its_own_forward_as_theory() -> None:
    found = waterfall(0, None, None, 1.0, 1.0, {**COSTS, "draft": 0.0, "verify": 1.0}, 1.7)
    assert (found.theory, found.positions, found.verify, found.drafting) == (1.0, 0.0, 0.0, 0.0)
    four = waterfall(0, None, None, 4.0, 2.0, {**COSTS, "draft": 0.0, "verify": 2.0}, 0.7, batch=4)
    assert (four.theory, four.positions) == (0.5, 0.0)


@pytest.mark.parametrize("kind", ["plain", "draft", "mtp"])
@pytest.mark.parametrize("batch", [1, 3])
def test_parts_are_measured_and_explain_most_of_a_round(kind: str, batch: int) -> None:
    target = small_target(depth=2)
    decoder = Decoder(target.gpt, make_drafter(kind, target, small_draft()))
    arm = Arm(kind, decoder.gamma, batch=batch)
    with torch.inference_mode():
        parts = RoundParts(decoder, [1] * 8, batch)
        measured = time_arms({arm: decoder}, [[1, 2]], 60, 5, 0, WallClock(), lambda _: None, {arm: parts})[arm]
    found = measured.median_parts
    assert found is not None and set(found) == set(PARTS) and len(measured.parts) == 5
    assert found["verify"] > 0 and found["host"] > 0 and (found["draft"] > 0) == (kind != "plain")
    rounds = sum(len(trace.active_RB) for trace in measured.traces)
    share = sum(found.values()) * rounds / sum(sample.seconds for sample in measured.samples)
    assert 0.5 < share < 2  # beside other tests; the ledger is held to more


def test_tokens_a_round_by_position() -> None:
    assert tokens_a_round([0.6] * 4, 4) == pytest.approx(2.3056)
    assert tokens_a_round([0.9, 0.5, 0.1], 2) == pytest.approx(1 + 0.9 + 0.45)
    assert tokens_a_round([1.0, None, 1.0], 3) == 2.0


def test_the_plan_is_the_best_prediction_or_not_to_speculate() -> None:
    found = plan([0.8, 0.7, 0.6], {1: 1.3, 2: 1.6, 3: 2.4}, 1.0)
    assert found.gamma == 2 and found.speedups[2] == pytest.approx((1 + 0.8 + 0.56) / 1.6)
    assert plan([0.1, 0.1], {1: 1.3, 2: 1.6}, 1.0).gamma is None


def test_no_prediction_is_above_tokens_a_round() -> None:
    """A round timed below a plain step was timed in noise."""
    assert plan([0.8, 0.7], {1: 0.5, 2: 1.5}, 1.0).speedups[1] == pytest.approx(1.8)


def test_rates_are_pooled_over_gammas() -> None:
    def counts(rounds: int, *accepted: int) -> Counts:
        return Counts(len(accepted), rounds, 0, 0, 0, 0, 0, 0, (), (), accepted, 0.0, 0.0)

    assert pooled_rates([counts(10, 6), counts(10, 9, 3)]) == [0.75, pytest.approx(1 / 3)]
    assert pooled_rates([counts(4, 0, 0)]) == [0.0, None]


def test_rounds_without_drafts_count() -> None:
    """Prompt lookup drafts in some rounds only: tokens a round are those of all rounds."""
    decoder = Decoder(small_target().gpt, NGramDrafter(13, 2))
    with torch.inference_mode():
        counts = decoder.run_rounds(decoder.prefill([[1], [2], [3]])[0], 40, seed=0).counts()
    assert counts.drafted < 2 * counts.rounds
    assert tokens_a_round(pooled_rates([counts]), 2) == pytest.approx(counts.tokens_per_target_forward)


def test_a_calibration_plans_for_every_drafter() -> None:
    """Greedy twins and other groups are left out."""
    target, draft = small_target(), small_draft()
    decoders: dict[Arm, Any] = {
        Arm("plain", 0): Decoder(target.gpt, NoDrafter(13)),
        Arm("draft", 1): Decoder(target.gpt, DraftModel(draft, 1)),
        Arm("draft", 3): Decoder(target.gpt, DraftModel(draft, 3)),
        Arm("mtp", 1, greedy=True): Decoder(target.gpt, make_drafter("mtp", target, draft)),
    }
    with torch.inference_mode():
        plans = calibrate(decoders, [[1, 2, 3], [4]], 0, WallClock(), lambda _: None)
    assert set(plans) == {("draft", "eager", 1)} and set(plans["draft", "eager", 1].speedups) == {1, 3}


def row(method: str, gamma: int, ms: float) -> dict[str, Any]:
    return {
        "id": f"{method}_g{gamma}", "method": method, "backend": "eager", "batch": 1, "gamma": gamma, "rule": "token",
        "ms_per_token": ms, "speedup": {"median": 1.0},
    }  # fmt: skip


def test_the_ledger_shows_plan_best_and_regret() -> None:
    found = plan([0.8, 0.7], {1: 1.3, 2: 1.5}, 1.0)
    rows = [row("plain", 0, 1.0), row("draft", 1, 0.6), row("draft", 2, 0.63)]
    entry = planner_json({("draft", "eager", 1): found}, rows)[0]
    assert (entry["gamma"], entry["measured_best_gamma"]) == (2, 1) and entry["regret"] == pytest.approx(0.05)
    assert plan_cells(entry)[2:] == ["2", "1: 1.38 2: 1.57", "1", "5.0 %"]
    slow = planner_json({("draft", "eager", 1): found}, [row("plain", 0, 0.5), *rows[1:]])[0]
    assert slow["measured_best_gamma"] is None and slow["regret"] == pytest.approx(0.26)
    assert plan_cells(slow)[4] == "plain"
    alone = planner_json({("draft", "eager", 1): found}, [])[0]
    assert alone["regret"] is None and plan_cells(alone)[4:] == ["–", "–"]
