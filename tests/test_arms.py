"""Which arms a bench has, and what it says of them."""

import numpy as np
import pytest
from conftest import small_target
from scipy import stats

from specmtp.analysis.statistics import Interval, paired_ratio, sign_test_p
from specmtp.decoding.ngram import NGramDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import GAMMAS, NETWORKLESS, Arm, choose_arms, kind_of, make_decoder
from specmtp.ledger.cells import verdict_line
from specmtp.ledger.rows import speedup_json


def row(method: str, gamma: int, median: float, low: float | None, high: float | None, passed: bool = True) -> dict:
    arm = Arm(method, gamma)
    speedup = {**speedup_json(Interval(median, low, high), 1e-4), "baseline": "plain"} if passed else None
    found = {"id": arm.id, "label": arm.label, "method": method, "speedup": speedup, "checks_passed": passed}
    return {**found, "backend": "compile", "batch": 1, "lossless": True}


def test_verdicts() -> None:
    plain = row("plain", 0, 1, 1, 1)
    fast, slow, level = (
        row("mtp", 1, 1.21, 1.17, 1.25),
        row("draft", 6, 0.9, 0.8, 0.95),
        row("draft", 1, 1.05, 0.98, 1.1),
    )
    assert verdict_line([plain, fast, slow]) == ("fastest: MTP γ=1, 1.21× [1.17, 1.25]; draft γ=6 is slower than plain")
    eager = {**row("draft", 2, 0.05, 0.04, 0.06), "backend": "eager", "id": "draft_g2_eager"}
    assert verdict_line([plain, fast, slow, eager]) == verdict_line([plain, fast, slow])  # a slower backend is no news
    assert verdict_line([plain, level, slow]).startswith("do not speculate")
    assert "NOT EXACT: MTP γ=1" in verdict_line([plain, row("mtp", 1, 1.2, 1.1, 1.3, passed=False)])
    assert "--repeats" in verdict_line([plain, row("mtp", 1, 1.2, None, None)])
    many = verdict_line([plain, *({**slow, "id": f"{i}", "label": f"arm {i}"} for i in range(9))])
    assert many.endswith("; arm 0, arm 1, arm 2, arm 3, arm 4, arm 5, 3 more are slower than plain")
    lossy = {**row("mtp", 4, 2.0, 1.9, 2.1, passed=False), "lossless": False, "speedup": fast["speedup"]}
    assert verdict_line([plain, fast, lossy]) == verdict_line([plain, fast])  # neither praised nor blamed


def test_a_verdict_counts_the_arms_that_were_tried() -> None:
    """With nothing to find, many arms and few pairs, one of them nearly always looks faster."""
    generator, named, looked = np.random.default_rng(0), 0, 0
    for _ in range(200):
        rows = [row("plain", 0, 1, 1, 1)]
        baseline = generator.lognormal(0, 0.1, 9)
        for gamma in range(1, 31):
            seconds = generator.lognormal(0, 0.1, 9)
            found = speedup_json(paired_ratio(baseline, seconds), sign_test_p(baseline, seconds))
            rows.append({**row("draft", gamma, 1, 1, 1), "speedup": found})
        verdict = verdict_line(rows)
        named += verdict.startswith("fastest") or "slower than plain" in verdict
        looked += any(r["speedup"]["verdict"] == "faster" for r in rows)
        assert ("so that an arm is timed 11 times or more" in verdict) == verdict.startswith("not sure yet")
    assert named <= 200 * 0.05 and looked > 200 * 0.2


def test_a_sign_test_is_scipys() -> None:
    pairs = [(1.0, 0.9), (1.0, 0.8), (1.0, 1.1), (1.0, 1.0), (2.0, 1.0)]
    wanted = stats.binomtest(3, 4).pvalue
    assert sign_test_p(*zip(*pairs, strict=True)) == pytest.approx(wanted)
    assert sign_test_p([1.0], [1.0]) == 1


def test_arms_of_the_ledger() -> None:
    usual = {"draft": "draft", "mtp": "mtp"}
    assert [a.id for a in choose_arms(usual, None)] == [
        "plain", "draft_g1", "draft_g2", "draft_g3", "draft_g4", "draft_g6", "draft_g8",
        "mtp_g1", "mtp_g2", "mtp_g3", "mtp_g4",
    ]  # fmt: skip
    assert [a.id for a in choose_arms({"mtp": "mtp"}, [2, 1, 2])] == ["plain", "mtp_g1", "mtp_g2"]


def test_arms_of_other_drafters_and_rules() -> None:
    arms = choose_arms({"short": "draft"}, [1, 2], uncached=True, greedy=True, rules=["token", "block", "typical"])
    assert [a.id for a in arms] == [
        "plain", "short_g1", "short_g2", "short_g2_block", "short_g1_typical", "short_g2_typical", "plain_uncached",
        "plain_greedy", "short_g1_greedy", "short_g2_greedy",
    ]  # fmt: skip
    assert [a.gamma for a in choose_arms({"heads": "mtp"}, None)] == [0, 1, 2, 3, 4]
    block, typical = arms[3], arms[5]
    assert block.lossless and not block.by_place and not typical.lossless
    assert typical.label == "short γ=2, typical (lossy)"
    for rule, settings in (("block", {"gammas": [1]}), ("typical", {"gammas": [2], "batches": [4]})):
        with pytest.raises(ValueError, match=f"--rules {rule} has no row"):
            choose_arms({"short": "draft"}, rules=["token", rule], **settings)  # type: ignore[arg-type]


def test_a_drafter_without_a_network_has_rows_by_two_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKLESS, "again", lambda vocab_size, gamma: NGramDrafter(vocab_size, gamma))
    monkeypatch.setitem(GAMMAS, "again", (2,))
    (plain, arm) = choose_arms({"again": kind_of("again", None)}, None)
    decoder = make_decoder(arm, small_target(), {"again": None}, Sampler())
    assert (plain.id, arm.id, arm.label, decoder.gamma) == ("plain", "again_g2", "again γ=2", 2)
