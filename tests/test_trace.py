"""Counts, rates and their pooling."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import small_draft, small_target

from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.metrics import Acceptance
from specmtp.decoding.trace import ACCEPTED, RESAMPLED, SAMPLED, Counts, Trace


def a_trace(seed: int, gamma: int = 3, rows: int = 4, rounds: int = 20) -> Trace:
    target = small_target()
    decoder = Decoder(target.gpt, DraftModel(small_draft(), gamma))
    with torch.inference_mode():
        return decoder.run_rounds(decoder.prefill([[1, 2]] * rows)[0], rounds, seed)


def counts_of(accepted: int, examined: int) -> Counts:
    return Counts(1, examined, examined, examined, accepted, accepted + examined, examined, examined,
                  (examined - accepted, accepted), (examined,), (accepted,), 0.0, 0.0)  # fmt: skip


def test_counts_are_pooled_not_rates() -> None:
    assert (counts_of(1, 10) + counts_of(90, 100)).acceptance_rate == pytest.approx(0.8273, abs=1e-4)


def test_nothing_drafted_has_no_rate() -> None:
    counts = Counts.empty(2)
    counts.check()
    rates = (counts.acceptance_rate, counts.accepted_per_drafted, counts.alpha_minpq, counts.tokens_per_target_forward)
    assert rates == (None,) * 4
    assert counts.acceptance_at == [None, None]
    plain = Decoder(small_target().gpt, NoDrafter(13))
    with torch.inference_mode():
        found = plain.run_rounds(plain.prefill([[1]])[0], 5, seed=0).counts()
    found.check()
    assert (found.acceptance_rate, found.tokens_per_target_forward) == (None, 1.0)


def test_a_hand_made_trace() -> None:
    """Two rounds of gamma 2: one draft kept and one rejected; then both kept. The second row is frozen in round 2."""
    trace = Trace(
        drafts_RBG=torch.tensor([[[5, 6], [7, 8]], [[1, 2], [0, 0]]]),
        num_drafts_RB=torch.tensor([[2, 2], [2, 2]]),
        num_accepted_RB=torch.tensor([[1, 0], [2, 0]]),
        emitted_RBN=torch.tensor([[[5, 9, 9], [4, 4, 4]], [[1, 2, 3], [0, 0, 0]]]),
        active_RB=torch.tensor([[True, True], [True, False]]),
        p_draft_RBG=torch.zeros(2, 2, 2),
        q_draft_RBG=torch.zeros(2, 2, 2),
        beta_RBG=torch.full((2, 2, 2), 0.5),
    )
    assert trace.tokens(0) == [5, 9, 1, 2, 3]
    assert trace.marks(0) == [ACCEPTED, RESAMPLED, ACCEPTED, ACCEPTED, SAMPLED]
    assert (trace.tokens(1), trace.marks(1)) == ([4], [RESAMPLED])
    assert [len(played.emitted) for played in trace.rounds(0)] == [2, 3]
    counts = trace.counts()
    counts.check()
    assert (counts.rounds, counts.drafted, counts.examined, counts.accepted, counts.emitted) == (3, 6, 5, 3, 6)
    assert counts.histogram == (1, 1, 1)
    assert (counts.examined_at, counts.accepted_at) == ((3, 2), (2, 1))
    assert (counts.beta_sum, counts.beta_variance) == (2.5, 1.25)


def test_a_wrong_rule_is_seen_in_beta() -> None:
    assert not Counts(
        1, 1000, 1000, 1000, 700, 1700, 1000, 1000, (300, 700), (1000,), (700,), 600, 240
    ).acceptance_matches_beta
    assert Counts(
        1, 1000, 1000, 1000, 620, 1620, 1000, 1000, (380, 620), (1000,), (620,), 600, 240
    ).acceptance_matches_beta


def same(one: Counts, two: Counts) -> bool:
    """Whole numbers equal, sums of β to float32's precision, in which a metric pools them."""
    rounded = [replace(c, beta_sum=round(c.beta_sum, 3), beta_variance=round(c.beta_variance, 3)) for c in (one, two)]
    return rounded[0] == rounded[1]


def test_metric_halves_merge_to_the_whole() -> None:
    one, two = a_trace(0), a_trace(1)
    whole, first, second = Acceptance(3), Acceptance(3), Acceptance(3)
    for metric, traces in ((whole, (one, two)), (first, (one,)), (second, (two,))):
        for trace in traces:
            metric.update(trace)
    pooled = whole.counts()
    pooled.check()
    assert same(pooled, one.counts() + two.counts())
    assert same(first.counts() + second.counts(), pooled)
    assert Acceptance(3).counts() == Counts.empty(3)


def test_two_processes_pool_to_one(tmp_path: Path) -> None:
    """Under gloo each process updates with its own trace; both compute what one process computes from both."""
    script = tmp_path / "worker.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch.distributed as dist
            from specmtp.decoding.metrics import Acceptance
            from test_trace import a_trace, same
            dist.init_process_group("gloo")
            metric = Acceptance(3)
            metric.update(a_trace(dist.get_rank()))
            counts = metric.counts()
            whole = a_trace(0).counts() + a_trace(1).counts()
            assert same(counts, whole), (counts, whole)
            assert counts.rounds == 2 * 4 * 20
            dist.destroy_process_group()
            print("pooled")
            """
        )
    )
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=180, env=_env(PYTHONPATH=f"{root}:{root / 'tests'}")
    )
    assert done.stdout.count("pooled") == 2, done.stderr[-2000:]


def _env(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}
