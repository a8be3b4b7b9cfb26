"""Prompt lookup against a plain search over the text."""

import pytest
import torch
from conftest import TableGPT, small_target

from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.drafters import NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.ngram import HISTORY, LONGEST, NGramDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.nn.fused import FusedGPT


def looked_up(text: list[int], gamma: int) -> list[int]:
    """Drafts by searching the last HISTORY tokens for the longest, then latest, earlier match of the end."""
    best = (0, -1)
    for end in range(max(0, len(text) - HISTORY + LONGEST + 1), len(text) - 1):
        match = 0
        while match < LONGEST and match <= end and text[end - match] == text[len(text) - 1 - match]:
            match += 1
        best = max(best, (match, end))
    match, end = best
    if match == 0:
        return []
    piece = text[end + 1 :]
    return [piece[i % len(piece)] for i in range(gamma)]


@pytest.mark.parametrize("length", [1, 2, 3, 9, 40, 300, HISTORY - 1, HISTORY, HISTORY + 1, 3 * HISTORY])
@pytest.mark.parametrize("gamma", [1, 4])
def test_drafts_are_those_of_a_plain_search(length: int, gamma: int) -> None:
    target = small_target().gpt
    generator = torch.Generator().manual_seed(length)
    rows = [torch.randint(size, (length,), generator=generator).tolist() for size in (2, 5, 13)]
    decoder = Decoder(target, NGramDrafter(13, gamma), Sampler())
    state, _ = decoder.prefill(rows)
    proposal = decoder.drafter.propose(state, decoder.sampler, torch.zeros(3, gamma))
    for row, text in enumerate(rows):
        wanted = looked_up(text, gamma) if length >= 2 else []
        assert proposal.num_drafts_B[row] == len(wanted)
        if wanted:
            assert proposal.drafts_BG[row].tolist() == wanted
    assert torch.equal(proposal.q_BGV.argmax(-1), proposal.drafts_BG) and torch.all(proposal.q_BGV.sum(-1) == 1)


def test_a_repeating_text_is_drafted_whole() -> None:
    """A target that goes round in a ring of four symbols: after one turn every draft is accepted."""
    ring = [[1e-9, 1, 1e-9, 1e-9], [1e-9, 1e-9, 1, 1e-9], [1e-9, 1e-9, 1e-9, 1], [1, 1e-9, 1e-9, 1e-9]]
    decoder = Decoder(TableGPT(ring), NGramDrafter(4, 5), Sampler(0))  # type: ignore[arg-type]
    made = decoder.generate([[0, 1, 2, 3, 0]], 60, seed=0)
    assert made.tokens[0] == [(1 + i) % 4 for i in range(60)]
    assert made.trace is not None and made.trace.counts().tokens_per_target_forward == 6


@pytest.mark.parametrize("gamma", [1, 3])
def test_greedy_text_is_plain_decodings_far_past_the_history(gamma: int) -> None:
    target = small_target().gpt
    prompts = [[0], [1, 2, 3], list(range(13)) * 2]
    plain = Decoder(target, NoDrafter(13), Sampler(0)).generate(prompts, 1200, seed=0)
    made = Decoder(target, NGramDrafter(13, gamma), Sampler(0)).generate(prompts, 1200, seed=0)
    assert made.tokens == plain.tokens


@pytest.mark.slow
def test_a_compiled_round_drafts_the_same() -> None:
    target = small_target().gpt
    eager = Decoder(target, NGramDrafter(13, 3), Sampler())
    graph = CompiledDecoder(FusedGPT(target), NGramDrafter(13, 3), Sampler())  # type: ignore[arg-type]
    prompt = [list(range(13)) * 2]
    with torch.inference_mode():
        assert graph.generate(prompt, 80, seed=1).tokens == eager.generate(prompt, 80, seed=1).tokens
