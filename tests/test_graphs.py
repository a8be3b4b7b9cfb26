"""Rounds as graphs without the compiler: places, tape, capture, profile and roofline, the round run op by op."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import SMALL, eager_and_graph, small_draft, small_target

from specmtp.analysis.roofline import forward_work, round_work
from specmtp.decoding import compiled
from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.cudagraph import CudaGraphDecoder
from specmtp.decoding.graphs import Compiled
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import noise_stream
from specmtp.decoding.sampling import Sampler
from specmtp.ledger import parts, profile
from specmtp.ledger.arms import Arm
from specmtp.ledger.memory import check_fits, row_bytes
from specmtp.ledger.timing import WallClock

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3]]


class OpByOp:
    """Stands in for ``Compiled``: the same calls, nothing compiled."""

    def __init__(self, function: Callable[..., Any], device: torch.device, rows: int = 1) -> None:
        self.function = function

    def bound(self, *args: Any, dry: bool = False) -> Callable[[], Any]:
        return lambda: self.function(*args)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(compiled, "Compiled", OpByOp)
    monkeypatch.setattr(parts, "Compiled", OpByOp)
    with torch.inference_mode():
        yield


def decoders(kind: str, make: type[CompiledDecoder], batch: int = 1) -> tuple[Decoder, CompiledDecoder]:
    """An eager decoder and one of graphs; what a CUDA graph replays is the round itself."""
    eager, graph = eager_and_graph(kind, make, batch)
    if isinstance(graph, CudaGraphDecoder):
        graph.capture = lambda call: call
    return eager, graph


@pytest.mark.parametrize("make", [CompiledDecoder, CudaGraphDecoder])
@pytest.mark.parametrize("kind", ["plain", "draft", "mtp"])
def test_places_and_tape_give_the_eager_text(kind: str, make: type[CompiledDecoder]) -> None:
    """Over several chunks of noise, from one prompt after another, and for another temperature of the same graph."""
    eager, graph = decoders(kind, make)
    for seed, prompt in enumerate(PROMPTS):
        one, two = (d.generate([prompt], 150, seed) for d in (eager, graph))
        assert one.tokens == two.tokens
        assert one.trace.counts().histogram == two.trace.counts().histogram  # type: ignore[union-attr]
    cold = Sampler(0.0)
    assert (
        eager.with_sampler(cold).generate(PROMPTS[:1], 50).tokens
        == graph.with_sampler(cold).generate(PROMPTS[:1], 50).tokens
    )


@pytest.mark.parametrize("make", [CompiledDecoder, CudaGraphDecoder])
def test_rows_of_a_batch_and_a_rollback(make: type[CompiledDecoder]) -> None:
    eager, graph = decoders("draft", make, batch=3)
    assert eager.generate(PROMPTS, 100, 5).tokens == graph.generate(PROMPTS, 100, 5).tokens
    state, _ = graph.prefill(PROMPTS)
    noise, active_B = next(noise_stream(1, 3, 3)), torch.tensor([True, True, False])
    left, first = graph.play(state, noise, active_B)
    _, again = graph.play(state, noise, active_B)
    assert torch.equal(first.emitted_BN, again.emitted_BN), "playing from the old state again is a rollback"
    assert torch.equal(left.length_B, state.length_B + first.count_B) and first.count_B[2] == 0


def test_a_state_of_another_decoder_is_refused() -> None:
    """Its caches are built for another gamma or batch, or are another's."""
    eager, graph = decoders("draft", CompiledDecoder)
    state, _ = eager.prefill([[1, 2, 3]])
    twin = Decoder(eager.target, eager.drafter, Sampler())
    for other in (graph, twin):
        with pytest.raises(ValueError, match="prefilled by another decoder"):
            other.play_rounds(state, 5, 0)
        with pytest.raises(ValueError, match="prefilled by another decoder"):
            other.run_rounds(state, 5, 0)
    eager.with_sampler(Sampler(0)).play_rounds(state, 5, 0)  # the same decoder, as far as caches go


def test_the_parts_of_a_round_are_measured() -> None:
    _, graph = decoders("mtp", CompiledDecoder)
    clock = WallClock()
    found = parts.RoundParts(graph, PROMPTS[2], 1).seconds(clock, 50)
    assert tuple(found) == parts.PARTS
    assert all(seconds > 0 for seconds in found.values())
    v = profile.verify_seconds(graph, PROMPTS[2], clock)
    assert list(v) == list(range(1, 10)) and min(v.values()) > 0
    row = {"id": "x", "gamma": 1, "c": 0.25, "tokens_per_target_forward": 1.8}
    assert profile.worth_json(row, {1: 2.0, 2: 2.5})["speedup"] == pytest.approx(1.8 / (1.25 + 0.25))


def test_the_machine_is_measured() -> None:
    bandwidth, rate = profile.machine_rates(WallClock(), 4e6, torch.device("cpu"), torch.float32)
    assert 1e8 < bandwidth < 1e13 and 1e8 < rate < 1e15


def test_bytes_and_operations_against_a_count_of_the_network() -> None:
    """Weights of products are the network's matrices but the embedding, twice the operations a token."""
    net = small_target(depth=1)
    matrices = sum(p.numel() for n, p in net.gpt.named_parameters() if p.dim() == 2 and "embed" not in n)
    cached = 2 * SMALL.num_layers * SMALL.attention_window * SMALL.num_kv_heads * SMALL.head_dim
    one = forward_work(SMALL, 1, 1, 4)
    assert one.bytes == 4 * (matrices + cached)
    attention = 4 * SMALL.num_layers * SMALL.attention_window * SMALL.d_model
    assert one.flops == 2 * matrices + attention
    batch = forward_work(SMALL, 1, 8, 4)
    assert batch.flops == 8 * one.flops and batch.bytes == one.bytes + 4 * 7 * cached
    module = sum(p.numel() for n, p in net.mtp.named_parameters() if p.dim() == 2)
    extra = round_work(SMALL, 1, 1, 4, mtp_depth=1)
    alone = forward_work(SMALL, 2, 1, 4, heads=2)
    last = forward_work(SMALL, 2, 1, 4, heads=2, last_only=True)
    behind = SMALL.d_model**2 + 3 * SMALL.d_model * SMALL.ffn_dim
    assert last.bytes == alone.bytes
    assert alone.flops - last.flops == 2 * behind + 4 * SMALL.attention_window * SMALL.d_model
    head = SMALL.d_model * SMALL.vocab_size
    assert extra.bytes - alone.bytes == 4 * (module + head + cached // SMALL.num_layers)
    assert one.seconds(bandwidth=one.bytes, rate=2 * one.flops) == 1.0


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does() -> None:
    arm = Arm("draft", 2, "compile", batch=64)
    drafters = {"draft": small_draft()}
    row = row_bytes(arm, SMALL, drafters["draft"], 4)
    check_fits([arm], SMALL, drafters, 4, memory=64 * row)
    with pytest.raises(ValueError, match=r"batch of 64 rows of draft γ=2.*up to --batches 10 would fit"):
        check_fits([arm], SMALL, drafters, 4, memory=10 * row + 5)


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_networks_of_one_shape_have_graphs_of_their_own() -> None:
    """Both from the disk's cache, where such graphs look alike."""
    torch.manual_seed(0)
    x = torch.randn(4, 64)
    for _ in range(2):
        for factor in (1.0, 3.0):
            net = torch.nn.Linear(64, 64, bias=False).requires_grad_(False)
            net.weight.copy_(factor * torch.eye(64))
            with torch.inference_mode():
                (found,) = Compiled(net.forward, x.device).bound(x)()
            torch.testing.assert_close(found, factor * x)
