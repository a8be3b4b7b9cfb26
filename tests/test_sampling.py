"""Sampler, inverse CDF, noise and accept rule against hand-written tables."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specmtp.decoding.accept import Proposal, Verdict, accept
from specmtp.decoding.noise import Noise, noise_stream
from specmtp.decoding.sampling import Sampler, sample

A_P, A_Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]


def judge(p: list, q: list, drafts: list[int], u: list[float], v: float = 0.5) -> Verdict:
    """The verdict on one row; p has one row more than q."""
    proposal = Proposal(torch.tensor([drafts]), torch.tensor([q]), torch.tensor([len(drafts)]))
    noise = Noise(torch.zeros(1, len(drafts)), torch.tensor([u]), torch.tensor([v]))
    return accept(torch.tensor([p]), proposal, noise)


def once(p: list[float], q: list[float], x: int, u: float, v: float = 0.5) -> tuple[int, int]:
    """(num_accepted, next token) of one draft; the bonus row is p again."""
    verdict = judge([p, p], [q], [x], [u], v)
    return int(verdict.num_accepted_B), int(verdict.next_token_B)


@pytest.mark.parametrize(
    "x, u, accepted",
    [(0, 0.20, 1), (0, 0.30, 0), (1, 0.66, 1), (1, 0.67, 0), (2, 0.9999, 1), (3, 0.9999, 1)],
)
def test_vector_a(x: int, u: float, accepted: int) -> None:
    assert once(A_P, A_Q, x, u)[0] == accepted


@pytest.mark.parametrize("v, token", [(0.10, 2), (0.30, 3)])
def test_vector_a_resampled(v: float, token: int) -> None:
    assert once(A_P, A_Q, 0, 0.9, v) == (0, token)


def test_vector_a_law() -> None:
    n = 200_000
    uniform = torch.rand(n, 3, generator=torch.Generator().manual_seed(0))
    noise = Noise.split(uniform)
    q, p = torch.tensor(A_Q).expand(n, 1, 4), torch.tensor(A_P).expand(n, 2, 4)
    drafts = sample(q[:, 0], noise.draft_v_BG[:, 0])[:, None]
    verdict = accept(p, Proposal(drafts, q, torch.ones(n, dtype=torch.long)), noise)
    first = torch.where(verdict.num_accepted_B > 0, drafts[:, 0], verdict.next_token_B)
    law = torch.bincount(first, minlength=4) / n
    assert (law - torch.tensor(A_P)).abs().max() < 0.005
    # acceptance is Σ min(p, q) = .6, not the chance of equality Σ p·q = .2
    assert verdict.num_accepted_B.double().mean().item() == pytest.approx(0.6, abs=0.005)
    assert verdict.beta_BG[0].item() == pytest.approx(0.6)


P = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]
Q = [[0.3, 0.4, 0.3], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]


@pytest.mark.parametrize(
    "start, drafts, u, v, emitted",
    [
        (0, [1, 1, 2], [0.5, 0.9, 0.0], 0.75, [1, 1, 2, 2]),
        (0, [1, 1, 2], [0.5, 0.9, 0.0], 0.05, [1, 1, 2, 0]),
        (0, [0, 2, 2], [0.99, 0.34, 0.99], 0.5, [0, 0]),
        (1, [0, 0, 0], [0.41, 0.0, 0.0], 0.60, [1]),
        (1, [0, 0, 0], [0.41, 0.0, 0.0], 0.70, [2]),
    ],
)
def test_vector_b(start: int, drafts: list[int], u: list[float], v: float, emitted: list[int]) -> None:
    states = [start, *drafts]
    verdict = judge([P[s] for s in states], [Q[s] for s in states[:-1]], drafts, u, v)
    accepted = int(verdict.num_accepted_B)
    assert [*drafts[:accepted], int(verdict.next_token_B)] == emitted


def test_drafts_past_num_drafts_are_not_examined() -> None:
    proposal = Proposal(torch.tensor([[0, 0]]), torch.tensor([[[1.0, 0], [1, 0]]]), torch.tensor([0]))
    noise = Noise(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0.45]))
    verdict = accept(torch.tensor([[[0.5, 0.5]] * 3]), proposal, noise)
    # drawn from p itself: the residual would be [0, .5]
    assert (int(verdict.num_accepted_B), int(verdict.next_token_B)) == (0, 0)


@pytest.mark.parametrize("u", [0.0, 0.5, 0.99999994])
@pytest.mark.parametrize("x", [0, 1, 2])
def test_equal_laws_accept_everything(x: int, u: float) -> None:
    p = [0.5, 0.25, 0.25, 0.0]
    assert once(p, p, x, u)[0] == 1


def test_residuals_at_the_edge_of_rounding() -> None:
    assert once([0.5, 0.5], [0.5000001, 0.4999999], 0, 0.99999994) == (0, 1)
    third = [0.333333] * 3
    for v, token in ((0.1, 0), (0.5, 1), (0.9, 2)):
        # rejected, residual exactly 0: falls back to p
        assert once(third, [0.333334] * 3, 1, 0.999999, v) == (0, token)


@pytest.mark.parametrize(
    "p, q, x, u, v, result",
    [
        ([0, 0.7, 0.3], [0.5, 0.3, 0.2], 0, 0.0, 0.0, (0, 1)),
        ([0, 0.7, 0.3], [0.5, 0.3, 0.2], 0, 0.0, 0.79, (0, 1)),
        ([0, 0.7, 0.3], [0.5, 0.3, 0.2], 0, 0.0, 0.85, (0, 2)),
        ([0.2, 0.3, 0.5], [0, 0.5, 0.5], 0, 0.99, 0.1, (1, 0)),
        ([0, 0.6, 0.4], [0, 0.5, 0.5], 0, 0.0, 0.5, (0, 1)),
        ([1, 0], [0, 1], 1, 0.0, 0.5, (0, 0)),
        # greedy: one-hots
        ([0, 1, 0], [1, 0, 0], 0, 0.0, 0.5, (0, 1)),
        ([0, 1, 0], [0, 1, 0], 1, 0.99999994, 0.5, (1, 1)),
    ],
)
def test_zero_probabilities(p: list, q: list, x: int, u: float, v: float, result: tuple) -> None:
    assert once([float(a) for a in p], [float(a) for a in q], x, u, v) == result


@pytest.mark.parametrize(
    "mass, v, token",
    [
        ([0, 0.5, 0, 0.5], 0.0, 1),
        ([0, 0.5, 0, 0.5], 0.49999, 1),
        ([0, 0.5, 0, 0.5], 0.5, 3),
        ([0, 0.5, 0, 0.5], 0.99999994, 3),
        ([0.25, 0.25, 0.25, 0.2499998, 0], 0.99999994, 3),
        ([0, 0, 1e-30, 0], 0.7, 2),
        ([2.0, 6.0], 0.26, 1),
    ],
)
def test_inverse_cdf(mass: list[float], v: float, token: int) -> None:
    assert int(sample(torch.tensor(mass), torch.tensor(v))) == token


def test_one_hot_is_always_drawn() -> None:
    v = torch.rand(1_000_000, generator=torch.Generator().manual_seed(0))
    assert (sample(torch.tensor([0.0, 1.0]).expand(1_000_000, 2), v) == 1).all()


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=1, max_size=20).filter(any),
    st.floats(0, 1, width=32, exclude_max=True, allow_subnormal=False),
)
def test_drawn_tokens_have_mass(mass: list[float], v: float) -> None:
    token = int(sample(torch.tensor(mass), torch.tensor(v)))
    assert torch.tensor(mass)[token] > 0


def probs(logits: list[float], **settings: float) -> list[float]:
    return Sampler(**settings)(torch.tensor(logits)).tolist()  # type: ignore[arg-type]


def logs(p: list[float]) -> list[float]:
    return torch.tensor(p).log().tolist()


def test_filters() -> None:
    assert probs(logs(A_P), top_k=2) == pytest.approx([0, 0, 3 / 7, 4 / 7])
    for off in ({"top_k": 0}, {"top_k": 1000}, {"top_p": 1.0}, {}):
        assert probs(logs(A_P), **off) == pytest.approx(A_P)
    assert probs(logs(A_P), top_p=1e-9) == [0, 0, 0, 1]
    assert probs(logs([0.5, 0.3, 0.2]), top_p=0.6) == pytest.approx([0.625, 0.375, 0])
    # strict top-k: the lower index wins a tie
    assert probs([3.0, 2.0, 2.0, 1.0], top_k=2) == pytest.approx([0.731, 0.269, 0, 0], abs=1e-3)


def test_filtered_draft_and_target_laws_meet() -> None:
    """Both laws filtered: the emitted law is p; with the raw q it would be [.571, .429]."""
    p = probs(logs([0.3, 0.4, 0.2, 0.1]), top_k=2)
    q = probs(logs([0.4, 0.3, 0.2, 0.1]), top_k=2)
    assert p == pytest.approx([3 / 7, 4 / 7, 0, 0])
    assert once(p, q, 0, 0.9) == (0, 1)
    assert once(p, q, 0, 0.74)[0] == 1
    wide, other = [0.6, 0.4, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]
    assert once(wide, other, 2, 0.0) == (0, 0)
    assert once(wide, other, 1, 0.79)[0] == 1
    assert once(wide, other, 1, 0.81) == (0, 0)
    assert judge([wide, wide], [other], [1], [0.5]).beta_BG.item() == pytest.approx(0.4)


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-40, 1e-30, 1e-6])
def test_cold_is_greedy(temperature: float) -> None:
    assert probs([1.0, 0.5, -2.0], temperature=temperature) == [1, 0, 0]


def test_ties_are_one_hot_at_the_lowest_index() -> None:
    assert probs([2.0, 2.0, 1.0], temperature=0) == [1, 0, 0]
    # one threshold for all decoders, whatever the size of the logits
    assert probs([1e4, 1e4 - 1, -1e4], temperature=1e-3) == [1, 0, 0]
    assert probs([300.0, -300.0, 0.0], temperature=1.0) == [1, 0, 0]


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "hot", None, True])
def test_bad_temperatures(bad: object) -> None:
    with pytest.raises(ValueError, match="temperature"):
        Sampler(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"top_k": -1}, {"top_k": 1.5}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_p": float("nan")}]
)
def test_bad_filters(bad: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampler(**bad)


def uniforms(seed: int | None, batch: int, rounds: int = 40, gamma: int = 2) -> Tensor:
    stream = noise_stream(seed, batch, gamma)
    return torch.stack(
        [
            torch.cat([n.draft_v_BG, n.accept_u_BG, n.emit_v_B[:, None]], 1)
            for n, _ in zip(stream, range(rounds), strict=False)
        ]
    )


def test_noise_of_a_row_is_its_own() -> None:
    assert torch.equal(uniforms(3, 4)[:, :2], uniforms(3, 2))
    assert torch.equal(uniforms(3, 1), uniforms(3, 1))
    assert not torch.equal(uniforms(3, 1), uniforms(4, 1))
    assert not torch.equal(uniforms(None, 1), uniforms(None, 1))
    flat = uniforms(0, 8, rounds=64).flatten()
    assert len(flat.unique()) > 0.99 * len(flat)  # fresh every round and row
    assert flat.min() >= 0 and flat.max() < 1


def test_global_generators_are_untouched() -> None:
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    uniforms(0, 3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
    assert before[2] == random.getstate()
