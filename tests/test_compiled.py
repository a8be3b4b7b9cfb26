"""Compiled rounds: the same tokens as eager ones under the same noise. Four graphs, compiled once for the module."""

import copy
import shutil
import time
from dataclasses import replace

import pytest
import torch
from conftest import eager_and_graph, make_drafter, small_draft, small_target

from specmtp.analysis.sampling_check import check_sampling
from specmtp.analysis.twin_check import check_twin
from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import Noise, uniform_chunks
from specmtp.decoding.round import Round
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import State
from specmtp.nn.fused import FusedMultiTokenGPT, product

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3]]


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[Decoder, CompiledDecoder]]:
    """Eager and compiled decoders by drafter; the one called batch takes three rows."""
    found = {name: eager_and_graph(name) for name in ("plain", "draft", "mtp")}
    return found | {"batch": eager_and_graph("draft", batch=3)}


@pytest.fixture(autouse=True)
def no_gradients():  # type: ignore[no-untyped-def]
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("temperature", [1.0, 0.0, 0.6])
@pytest.mark.parametrize("kind", ["plain", "draft", "mtp"])
def test_same_noise_same_tokens(pairs: dict, kind: str, temperature: float) -> None:
    eager, compiled = (decoder.with_sampler(Sampler(temperature)) for decoder in pairs[kind])
    for seed, prompt in enumerate(PROMPTS):
        one, two = eager.generate([prompt], 300, seed), compiled.generate([prompt], 300, seed)
        assert one.tokens == two.tokens
        assert one.trace.counts().histogram == two.trace.counts().histogram
        stopped = [d.generate([prompt], 60, seed, stop_token=3).tokens for d in (eager, compiled)]
        assert stopped[0] == stopped[1]


def test_rows_of_a_compiled_batch_are_their_own_runs(pairs: dict) -> None:
    """Rows of a batch draw from (seed, row): row 0 has a batch of one's noise, the others follow the eager batch."""
    eager, compiled = pairs["batch"]
    texts = compiled.generate(PROMPTS, 200, 5).tokens
    assert texts == eager.generate(PROMPTS, 200, 5).tokens
    assert texts[0] == pairs["draft"][1].generate(PROMPTS[:1], 200, 5).tokens[0]


@pytest.mark.parametrize("kind", ["draft", "mtp"])
def test_the_law_holds_and_a_wrong_decoder_is_seen(pairs: dict, kind: str) -> None:
    compiled = pairs[kind][1]
    contexts = torch.randint(13, (20, 9), generator=torch.Generator().manual_seed(0)).tolist()
    assert check_sampling(compiled, PROMPTS[2], 3000, 0, num_checks=4, others=contexts).passed


@pytest.mark.parametrize("kind", ["draft", "mtp", "batch"])
def test_a_graph_drafts_as_its_networks_do(pairs: dict, kind: str) -> None:
    eager, compiled = pairs[kind]
    check = check_twin(compiled, eager, PROMPTS, 0)
    assert check.passed and check.max_abs_diff < 1e-4
    assert check.drafts > 50  # of 3 × 8 × 3: same noise, same text, so that hardly any draft is left out


def test_a_graph_that_drafts_with_other_weights_is_seen(pairs: dict) -> None:
    """Greedy identity and the law of samples hold for it; its acceptance is another drafter's."""
    eager, compiled = pairs["draft"]
    other = Decoder(eager.target, make_drafter("draft", None, small_draft(seed=2)), eager.sampler)
    check = check_twin(compiled, other, PROMPTS, 0)
    assert not check.passed and check.differing > check.drafts / 2 and check.max_abs_diff > 50 * check.limit
    assert check_sampling(compiled, PROMPTS[2], 3000, 0, num_checks=4).passed


def test_a_graph_that_drafts_nothing_is_seen(pairs: dict) -> None:
    eager, compiled = pairs["draft"]

    class Silent(CompiledDecoder):
        def play(self, state: State, noise: Noise, active_B: torch.Tensor) -> tuple[State, Round]:
            state, played = super().play(state, noise, active_B)
            none_B = torch.zeros_like(played.proposal.num_drafts_B)
            return state, replace(played, proposal=replace(played.proposal, num_drafts_B=none_B))

    silent = copy.copy(compiled)
    silent.__class__ = Silent
    check = check_twin(silent, eager, PROMPTS, 0)
    assert (check.drafts, check.differing, check.passed) == (0, len(PROMPTS), False)


def test_what_it_was_not_compiled_for_is_refused(pairs: dict) -> None:
    with pytest.raises(ValueError, match="compiled for a batch of 3, got 1"):
        pairs["batch"][1].prefill([[1]])
    with pytest.raises(ValueError, match="whole number from 0"):
        pairs["plain"][1].generate([[1]], -1)


@pytest.mark.parametrize("rows, tokens", [(1, 1), (2, 1), (1, 6), (1, 7), (2, 4), (1, 9), (5, 3), (4, 4), (17, 1)])
def test_products_in_pieces_are_the_same(rows: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    x, weight = torch.randn(rows, tokens, 24), torch.randn(24, 40)
    torch.testing.assert_close(product(x, weight), x @ weight)


def test_fused_networks_are_the_same_function() -> None:
    net = small_target(depth=2)
    fused = FusedMultiTokenGPT(net)
    for kind in ("plain", "mtp"):
        one = Decoder(net.gpt, make_drafter(kind, net, None), Sampler(0)).generate(PROMPTS, 200).tokens
        two = Decoder(fused.gpt, make_drafter(kind, fused, None), Sampler(0)).generate(PROMPTS, 200).tokens  # type: ignore[arg-type]
        assert one == two


def far(decoder: CompiledDecoder, num_tokens: int, tenths: int = 10) -> tuple[float, list[float]]:
    """Decodes at least that many tokens from one prompt.

    Returns the largest difference of its last logits from those of the last layers × window tokens encoded anew from
    position 0, and the seconds of every tenth of the way.
    """
    state, _ = decoder.prefill([[1, 2, 3]])
    places, call = decoder.ready(state, state.length_B + (decoder.gamma + 1) * num_tokens)
    uniforms = uniform_chunks(0, 1, decoder.gamma)
    tokens, seconds = [1, 2, 3], []
    for _ in range(tenths):
        began = time.perf_counter()
        for _ in range(num_tokens // (32 * tenths)):
            places.uniform_RBU.copy_(next(uniforms))
            places.tape.next_1.zero_()
            for _ in range(32):
                call()
            tokens += places.tape.trace(32).tokens(0)
            del tokens[:-4096]
        seconds.append(time.perf_counter() - began)
    state, config = places.state, decoder.target.config
    start_B = state.length_B - 1
    h_BTD = decoder.target.hidden(state.tokens(start_B, 1), state.cache, state.cache.geometry(start_B, 1))
    anew = torch.tensor([tokens[-config.num_layers * config.attention_window :]])
    difference = decoder.target.logits(h_BTD)[0, -1] - decoder.target(anew)[0, -1]
    assert int(state.length_B) > 0.99 * num_tokens
    return float(difference.abs().max()), seconds


def test_position_100_000_is_as_good_as_any(pairs: dict) -> None:
    """Nothing grows on the way but the counters, and the angles keep their precision."""
    difference, _ = far(pairs["plain"][1], 100_000)
    assert difference < 1e-3


@pytest.mark.slow
def test_100_000_tokens_take_constant_time(pairs: dict) -> None:
    """The last tenth within 10 % of the first; the best of three, since other work only slows down."""
    runs = [far(pairs["plain"][1], 100_000)[1] for _ in range(3)]
    first, last = min(run[0] for run in runs), min(run[-1] for run in runs)
    assert last == pytest.approx(first, rel=0.1)
