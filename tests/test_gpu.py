"""What only a CUDA device can show; tests/test_bench.py holds the same clocks to fake events."""

from pathlib import Path

import pytest
import torch
from conftest import small_draft, small_target
from test_checkpoint import save

from specmtp.analysis.exactness import causal_difference
from specmtp.analysis.sampling_check import check_sampling
from specmtp.checkpoint import load
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.timing import CudaClock, WallClock

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3]]


def decoders(device: str, sampler: Sampler, dtype: torch.dtype = torch.float32) -> list[Decoder]:
    target, draft = small_target().to(device, dtype), small_draft().to(device, dtype)
    drafters: list[Drafter] = [NoDrafter(13), DraftModel(draft, 3), MTPDrafter(target, 2)]
    return [Decoder(target.gpt, drafter, sampler) for drafter in drafters]


def test_greedy_text_is_the_cpus() -> None:
    """Up to ties: random weights have none within 200 tokens."""
    wanted = decoders("cpu", Sampler(0))[0].generate(PROMPTS, 200).tokens
    for decoder in decoders("cuda", Sampler(0)):
        assert decoder.generate(PROMPTS, 200).tokens == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_samples_follow_the_law(dtype: torch.dtype) -> None:
    for i, decoder in enumerate(decoders("cuda", Sampler(), dtype)):
        check = check_sampling(decoder, PROMPTS[2], 20_000, seed=i, num_checks=6)
        assert check.passed and check.acceptance_matches_beta


def test_seeds_hold_on_the_device() -> None:
    decoder = decoders("cuda", Sampler())[1]
    one, same, other = (decoder.generate([[1, 2]], 60, seed=seed).tokens for seed in (1, 1, 2))
    assert one == same != other


def test_causal_on_the_device() -> None:
    assert causal_difference(small_target().gpt.cuda(), torch.randint(13, (64,), device="cuda")) <= 1e-5


def test_event_time_is_wall_time() -> None:
    """Within 20 % of a synchronised wall clock, and a generation of four times the length takes clearly longer."""
    decoder = decoders("cuda", Sampler())[0]

    def generation(num_tokens: int) -> None:
        decoder.generate([[1]], num_tokens, seed=0)

    for _ in range(2):
        generation(400)
    _, events = CudaClock().time(lambda: generation(400))
    _, wall = WallClock(torch.cuda.synchronize).time(lambda: generation(400))
    _, longer = CudaClock().time(lambda: generation(1600))
    assert events == pytest.approx(wall, rel=0.2) and longer > 2.5 * events


def test_a_checkpoint_of_the_gpu_opens_on_the_cpu(tmp_path: Path) -> None:
    net = small_target().cuda()
    opened = load(save(tmp_path / "a.ckpt", net)).net
    assert opened.gpt.lm_head.weight.device.type == "cpu"
    ids = torch.randint(13, (2, 8))
    assert torch.allclose(opened(ids)[0], net(ids.cuda())[0].cpu(), atol=1e-4)
