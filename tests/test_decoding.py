"""The real round and loop: exact laws on tables, greedy identity, budgets, caches, rows, seeds."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import SMALL, SMALL_DRAFT, TableGPT, small_draft, small_target
from scipy import stats
from torch import Tensor

from specmtp.analysis.sampling_check import check_sampling, g_test_p
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder, Generation
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import Trace
from specmtp.decoding.uncached import UncachedDecoder
from specmtp.nn.cache import KVCache
from specmtp.nn.config import GPTConfig
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

P = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]
Q = [[0.3, 0.4, 0.3], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]
A_P, A_Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
RING = [[float(j == (i + 1) % 5) for j in range(5)] for i in range(5)]
RING_DRAFT = [row if i != 3 else [0.0, 0.0, 0.0, 1.0, 0.0] for i, row in enumerate(RING)]
GAMMAS = range(1, 9)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


def table_decoder(p: list, q: list, gamma: int, temperature: float = 1.0) -> Decoder:
    return Decoder(TableGPT(p), DraftModel(TableGPT(q), gamma), Sampler(temperature))  # type: ignore[arg-type]


def play_many(decoder: Decoder, prompt: list[int], rows: int, rounds: int, seed: int = 0) -> list[list[int]]:
    """Tokens of many rows after some rounds, and the summed identities checked."""
    state = decoder.expand(decoder.prefill([prompt])[0], rows)
    generator, played = torch.Generator().manual_seed(seed), []
    for _ in range(rounds):
        noise = Noise.split(torch.rand(rows, 2 * decoder.gamma + 1, generator=generator))
        state, what = decoder.play(state, noise, torch.ones(rows, dtype=torch.bool))
        played.append(what)
    trace = Trace.of(played)
    counts = trace.counts()
    counts.check()
    assert counts.acceptance_matches_beta
    return [trace.tokens(row) for row in range(rows)]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_law_of_the_first_two_tokens(gamma: int) -> None:
    """Vector B: [[.36,.18,.06],[.06,.15,.09],[.01,.02,.07]] from state 0, for every gamma; limit at .001."""
    rows = 12_000
    texts = play_many(table_decoder(P, Q, gamma), [0, 0], rows, rounds=2, seed=gamma)
    count = Counter((t[0], t[1]) for t in texts)
    law = np.array([[0.36, 0.18, 0.06], [0.06, 0.15, 0.09], [0.01, 0.02, 0.07]]).flatten()
    observed = [count[i, j] for i in range(3) for j in range(3)]
    assert stats.chisquare(observed, law * rows).statistic < 26.1


def test_the_law_test_can_fail() -> None:
    """The draft's own tokens, all accepted, are far off."""
    decoder = table_decoder(P, Q, 2)
    always = decoder.accept_rule

    def accept_all(p: Tensor, proposal, noise: Noise):
        return always(p, proposal, Noise(noise.draft_v_BG, torch.zeros_like(noise.accept_u_BG), noise.emit_v_B))

    decoder.accept_rule = accept_all
    state = decoder.expand(decoder.prefill([[0, 0]])[0], 4000)
    noise = Noise.split(torch.rand(4000, 5, generator=torch.Generator().manual_seed(0)))
    first = decoder.play(state, noise, torch.ones(4000, dtype=torch.bool))[1].emitted_BN[:, 0]
    assert stats.chisquare(torch.bincount(first, minlength=3).numpy(), np.array(P[0]) * 4000).pvalue < 1e-6


@pytest.mark.parametrize(
    "gamma, tokens, per_drafted",
    [(1, 1.6, 0.6), (2, 1.96, 0.48), (3, 2.176, 0.392), (4, 2.3056, 0.3264), (6, 2.43, 0.2383), (8, 2.4748, 0.1844)],
)
def test_counts_under_equal_rows(gamma: int, tokens: float, per_drafted: float) -> None:
    """Vector C: accepted/examined stays .6 while accepted/drafted falls."""
    decoder = table_decoder([A_P] * 4, [A_Q] * 4, gamma)
    state = decoder.expand(decoder.prefill([[0, 0]])[0], 4000)
    counts = decoder.run_rounds(state, 5, seed=gamma).counts()
    counts.check()
    assert counts.acceptance_rate == pytest.approx(0.6, abs=0.015)
    assert counts.tokens_per_target_forward == pytest.approx(tokens, abs=0.04)
    assert counts.accepted_per_drafted == pytest.approx(per_drafted, abs=0.015)
    assert counts.alpha_minpq == pytest.approx(0.6)


@pytest.mark.parametrize(
    "start, gamma, emitted, accepted, examined",
    [
        (0, 4, [1, 2, 3, 4], 3, 4),
        (4, 4, [0, 1, 2, 3, 4], 4, 4),
        (3, 4, [4], 0, 1),
        (3, 1, [4], 0, 1),
        (0, 1, [1, 2], 1, 1),
    ],
)
def test_greedy_ring(start: int, gamma: int, emitted: list[int], accepted: int, examined: int) -> None:
    """Vector D."""
    decoder = table_decoder(RING, RING_DRAFT, gamma, temperature=0)
    trace = decoder.run_rounds(decoder.prefill([[0, start]])[0], 1)
    counts = trace.counts()
    assert (trace.tokens(0), counts.accepted, counts.examined) == (emitted, accepted, examined)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("q", [RING, RING_DRAFT], ids=["same", "other"])
def test_exact_budget(gamma: int, q: list) -> None:
    decoder = table_decoder(RING, q, gamma, temperature=0)
    for n in range(21):
        tokens = decoder.generate([[4, 0]], n).tokens[0]
        assert tokens == [(1 + i) % 5 for i in range(n)]
        assert decoder.generate([[4, 0]], n + 1).tokens[0][:n] == tokens


@pytest.mark.parametrize("n, rounds", [(1, 1), (5, 1), (6, 2), (20, 4)])
def test_rounds_of_a_budget(n: int, rounds: int) -> None:
    trace = table_decoder(RING, RING, 4, temperature=0).generate([[4, 0]], n).trace
    assert trace is not None and trace.counts().rounds == rounds


@pytest.mark.parametrize("bad", [-1, 1.5, "3", None, True])
def test_bad_budgets(bad: object) -> None:
    with pytest.raises(ValueError, match="number of tokens"):
        table_decoder(RING, RING, 2).generate([[0]], bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2"])
def test_bad_gammas(bad: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        table_decoder(RING, RING, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [[], [[]], [[0], []], [[5]], [[-1]]])
def test_bad_prompts(bad: list) -> None:
    with pytest.raises(ValueError, match="prompt"):
        table_decoder(RING, RING, 2).generate(bad, 3)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_stop_token_cuts_inside_a_round(gamma: int) -> None:
    arms = [table_decoder(RING, RING, gamma, 0), Decoder(TableGPT(RING), NoDrafter(5), Sampler(0))]  # type: ignore[arg-type]
    for decoder in arms:
        assert decoder.generate([[4, 0], [4, 2]], 12, stop_token=3).tokens == [[1, 2, 3], [3]]
        assert decoder.generate([[4, 0]], 2, stop_token=3).tokens == [[1, 2]]
        counts = decoder.generate([[4, 0], [4, 2]], 12, stop_token=3).trace.counts()  # type: ignore[union-attr]
        counts.check()  # rows that are done are frozen and not counted


Arms = dict[str, Callable[[int], Drafter]]


@pytest.fixture(scope="module")
def target() -> MultiTokenGPT:
    return small_target(depth=2)


@pytest.fixture(scope="module")
def arms(target: MultiTokenGPT) -> Arms:
    draft, shared = small_draft(), small_target(depth=3, shared=True)
    shared.gpt.load_state_dict(target.gpt.state_dict())
    return {
        "draft": lambda gamma: DraftModel(draft, gamma),
        "same": lambda gamma: DraftModel(target.gpt, gamma),
        "mtp": lambda gamma: MTPDrafter(target, gamma),
        "mtp_shared": lambda gamma: MTPDrafter(shared, gamma),
    }


def prompt_of(length: int) -> list[int]:
    return torch.randint(13, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def uncached_greedy(net: GPT, prompt: list[int], num_tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    for _ in range(num_tokens):
        ids = torch.cat([ids, net(ids)[:, -1:].argmax(-1)], 1)
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 40])
def test_plain_equals_the_uncached_model(target: MultiTokenGPT, length: int) -> None:
    plain = Decoder(target.gpt, NoDrafter(13), Sampler(0))
    assert plain.generate([prompt_of(length)], 60).tokens[0] == uncached_greedy(target.gpt, prompt_of(length), 60)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("name", ["draft", "same", "mtp", "mtp_shared"])
def test_greedy_speculative_equals_greedy_plain(target: MultiTokenGPT, arms: Arms, name: str, gamma: int) -> None:
    """Inside and far past the window, prompts of any length in one batch, 200 tokens."""
    prompts = [prompt_of(n) for n in (1, 2, 7, 8, 9, 40)]
    plain = Decoder(target.gpt, NoDrafter(13), Sampler(0)).generate(prompts, 200)
    found = Decoder(target.gpt, arms[name](gamma), Sampler(0)).generate(prompts, 200)
    assert found.tokens == plain.tokens
    counts = found.trace.counts()  # type: ignore[union-attr]
    counts.check()
    assert counts.acceptance_matches_beta
    if name != "same":
        assert counts.acceptance_rate < 1  # else the identity would prove nothing
    assert len({tuple(t) for t in plain.tokens}) > 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_draft_equal_to_target_accepts_everything(target: MultiTokenGPT, temperature: float, gamma: int) -> None:
    decoder = Decoder(target.gpt, DraftModel(target.gpt, gamma), Sampler(temperature))
    state = decoder.expand(decoder.prefill([prompt_of(5)])[0], 8)
    counts = decoder.run_rounds(state, 50, seed=0).counts()
    assert counts.acceptance_rate is not None
    assert counts.acceptance_rate == 1 if temperature == 0 else counts.acceptance_rate >= 0.999
    assert all(rate is not None and rate >= 0.999 for rate in counts.acceptance_at)
    other = Decoder(target.gpt, DraftModel(small_draft(), gamma), Sampler(temperature))
    assert other.run_rounds(other.prefill([prompt_of(5)])[0], 50, seed=0).counts().acceptance_rate < 0.9  # type: ignore[operator]


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_caches_hold_what_a_full_forward_computes(target: MultiTokenGPT, gamma: int) -> None:
    """After each of 100 rounds, cached next-token logits of both models equal those of the whole text, uncached."""
    draft = small_draft(config=SMALL)
    decoder = Decoder(target.gpt, DraftModel(draft, gamma), Sampler(1.5))
    state, _ = decoder.prefill([prompt_of(5)])
    text, accepted = prompt_of(5), set()
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        noise = Noise.split(torch.rand(1, 2 * gamma + 1, generator=generator))
        state, played = decoder.play(state, noise, torch.ones(1, dtype=torch.bool))
        text += played.emitted_BN[0, : int(played.count_B)].tolist()
        accepted.add(int(played.verdict.num_accepted_B))
        assert int(state.length_B) == len(text)
        assert state.tokens(state.length_B - 1, 1).item() == text[-1]
        for net, cache in ((target.gpt, state.cache), (draft, state.drafter)):
            check_cache(net, cache, text, len(text) - 1 if net is target.gpt else len(text) - 2)
    assert {0, gamma} <= accepted or gamma == 8


def check_cache(net: GPT, cache: KVCache, text: list[int], start: int) -> None:
    ids = torch.tensor([text])
    copy = KVCache(cache.config, [k.clone() for k in cache.keys], [v.clone() for v in cache.values])
    h = net.hidden(ids[:, start:], copy, copy.geometry(torch.tensor([start]), len(text) - start))
    torch.testing.assert_close(net.logits(h)[:, -1], net(ids)[:, -1], atol=1e-4, rtol=1e-4)


def first_mtp_q(target: MultiTokenGPT, text: list[int], gamma: int = 1) -> Tensor:
    decoder = Decoder(target.gpt, MTPDrafter(target, gamma), Sampler())
    state, _ = decoder.prefill([text])
    return decoder.drafter.propose(state, decoder.sampler, torch.full((1, gamma), 0.5)).q_BGV


@pytest.mark.parametrize("length", [2, 3, 6, 8])
def test_first_mtp_draft_is_the_training_forward(target: MultiTokenGPT, length: int) -> None:
    """Prompt and pending token: the first draft's law is depth 1's at the row before the pending token."""
    text = prompt_of(length)
    wanted = target(torch.tensor([text]))[1][0, -1].softmax(-1)
    torch.testing.assert_close(first_mtp_q(target, text)[0, 0], wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("length", [3, 6, 8])
def test_second_mtp_draft_is_depth_2_of_the_training_forward(target: MultiTokenGPT, length: int) -> None:
    text = prompt_of(length)
    decoder = Decoder(target.gpt, MTPDrafter(target, 2), Sampler())
    state, _ = decoder.prefill([text])
    proposal = decoder.drafter.propose(state, decoder.sampler, torch.full((1, 2), 0.5))
    whole = torch.tensor([[*text, int(proposal.drafts_BG[0, 0])]])
    torch.testing.assert_close(proposal.q_BGV[0, 1], target(whole)[2][0, -1].softmax(-1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_mtp_drafts_depend_on_the_committed_text_alone(target: MultiTokenGPT, gamma: int) -> None:
    """After many rounds with rejections, the next proposal equals that of a fresh prefill of the same text."""
    decoder = Decoder(target.gpt, MTPDrafter(target, gamma), Sampler(1.5))
    state, _ = decoder.prefill([prompt_of(5)])
    text, rejected = prompt_of(5), 0
    generator = torch.Generator().manual_seed(1)
    for _ in range(40):
        noise = Noise.split(torch.rand(1, 2 * gamma + 1, generator=generator))
        state, played = decoder.play(state, noise, torch.ones(1, dtype=torch.bool))
        text += played.emitted_BN[0, : int(played.count_B)].tolist()
        rejected += int(played.verdict.num_accepted_B) < gamma
        v = torch.full((1, gamma), 0.3)
        fresh, _ = decoder.prefill([text])
        again = decoder.drafter.propose(fresh, decoder.sampler, v)
        mine = decoder.drafter.propose(state, decoder.sampler, v)
        assert torch.equal(mine.drafts_BG, again.drafts_BG)
        torch.testing.assert_close(mine.q_BGV, again.q_BGV, atol=1e-4, rtol=1e-3)
    assert rejected > 5


def test_mtp_needs_modules() -> None:
    with pytest.raises(ValueError, match="mtp_depth"):
        MTPDrafter(MultiTokenGPT(SMALL, 0), 1)


@pytest.mark.parametrize("name", ["draft", "mtp"])
def test_rows_equal_their_own_batch_of_one(target: MultiTokenGPT, arms: Arms, name: str) -> None:
    decoder = Decoder(target.gpt, arms[name](3), Sampler(1.0))
    prompts = [prompt_of(n) for n in (2, 9, 1, 30)]
    both = decoder.generate(prompts, 50, seed=5)
    # row i draws from (seed, i): a batch of the first i + 1 rows holds row i as well
    for rows in (1, 2, 3):
        alone = decoder.generate(prompts[:rows], 50, seed=5)
        assert alone.tokens == both.tokens[:rows]
    accepted = both.trace.num_accepted_RB  # type: ignore[union-attr]
    assert (accepted[:, 0] != accepted[:, 1]).any()
    both.trace.counts().check()  # type: ignore[union-attr]


def rounds_of(generation: Generation) -> list:
    trace = generation.trace
    assert trace is not None
    return [trace.num_accepted_RB.tolist(), trace.drafts_RBG.tolist()]


@pytest.mark.parametrize("name", ["draft", "mtp"])
def test_seeds(target: MultiTokenGPT, arms: Arms, name: str) -> None:
    decoder = Decoder(target.gpt, arms[name](2), Sampler(1.0))
    before = torch.get_rng_state()
    one, two, other = (decoder.generate([prompt_of(4)], 60, seed=s) for s in (7, 7, 8))
    assert torch.equal(before, torch.get_rng_state())
    assert (one.tokens, rounds_of(one)) == (two.tokens, rounds_of(two))
    assert one.tokens != other.tokens
    assert decoder.generate([prompt_of(4)], 60).tokens != decoder.generate([prompt_of(4)], 60).tokens


@pytest.mark.parametrize("name", ["draft", "mtp"])
@pytest.mark.parametrize("gamma", [1, 3])
def test_sampled_law_of_networks(target: MultiTokenGPT, arms: Arms, name: str, gamma: int) -> None:
    """Pairs of first tokens after a context past the window, against the law that follows from the target alone."""
    context, rows = prompt_of(20), 20_000
    p1 = target.gpt(torch.tensor([context]))[0, -1].softmax(-1).double()
    after = torch.tensor([[*context, x] for x in range(13)])
    law = (p1[:, None] * target.gpt(after)[:, -1].softmax(-1).double()).flatten().numpy()
    texts = play_many(Decoder(target.gpt, arms[name](gamma), Sampler()), context, rows, rounds=2, seed=gamma)
    count = np.bincount([13 * t[0] + t[1] for t in texts], minlength=169)
    assert g_test_p(count, law / law.sum()) > 1e-4


def test_first_round_from_position_0_is_plain(target: MultiTokenGPT, arms: Arms) -> None:
    for make in arms.values():
        decoder = Decoder(target.gpt, make(2), Sampler())
        trace = decoder.run_rounds(decoder.prefill([[3], [3, 4]])[0], 2, seed=0)
        assert trace.num_drafts_RB.tolist() == [[0, 2], [2, 2]]
        trace.counts().check()


def test_draft_may_have_another_window(target: MultiTokenGPT) -> None:
    assert SMALL_DRAFT.attention_window != SMALL.attention_window
    decoder = Decoder(target.gpt, DraftModel(small_draft(), 8), Sampler(0))
    plain = Decoder(target.gpt, NoDrafter(13), Sampler(0))
    assert decoder.generate([prompt_of(40)], 100).tokens == plain.generate([prompt_of(40)], 100).tokens


WIDE = GPTConfig(vocab_size=13, num_layers=2, d_model=32, num_heads=4, num_kv_heads=2, attention_window=64, dropout=0.0)


@pytest.mark.parametrize(
    "method, gamma", [("plain", 0), ("draft", 1), ("draft", 4), ("mtp", 1), ("mtp", 2), ("mtp", 4)]
)
def test_uncached_twins_agree_inside_the_window(method: str, gamma: int) -> None:
    """Greedy text, and the laws of the drafts, are those of the cached decoder as long as nothing is cropped."""
    target, draft = small_target(depth=2, config=WIDE), small_draft()
    drafters: dict[str, Drafter] = {"plain": NoDrafter(13)}
    if gamma:
        drafters = {"draft": DraftModel(draft, gamma), "mtp": MTPDrafter(target, gamma)}
    cached = Decoder(target.gpt, drafters[method], Sampler(0))
    uncached = UncachedDecoder(target, method, gamma, Sampler(0), draft)
    prompts = [prompt_of(n) for n in (1, 2, 8)]
    for prompt in prompts:
        one, two = cached.generate([prompt], 64 - 8 - gamma), uncached.generate([prompt], 64 - 8 - gamma)
        assert one.tokens == two.tokens
        assert one.trace is not None and two.trace is not None
        # the same drafts are accepted: the uncached drafter makes the same guesses
        if method != "draft":  # the draft model's own window is narrower than its crop's first layers' reach
            assert one.trace.counts().histogram == two.trace.counts().histogram


def test_uncached_law_inside_the_window() -> None:
    target = small_target(depth=1, config=WIDE)
    for method, gamma in (("draft", 2), ("mtp", 1), ("mtp", 3)):
        decoder = UncachedDecoder(target, method, gamma, Sampler(), small_draft())
        check = check_sampling(decoder, prompt_of(30), 20_000, 0, num_checks=3)
        assert check.passed
    assert UncachedDecoder(target, "plain", 0).generate([[1], [2, 3]], 5, seed=0, stop_token=None).tokens[1] != []
    for n in (0, 1, 7):
        assert len(UncachedDecoder(target, "mtp", 3).generate([[1]], n, seed=0).tokens[0]) == n
    with pytest.raises(ValueError, match="one prompt at a time"):
        UncachedDecoder(target, "mtp", 3).prefill([[1], [2]])
