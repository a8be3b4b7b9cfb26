"""The parts of a round, each timed on its own and in turns with the generations: where the time goes.

Shapes: B rows, G drafts (gamma), N = G + 1 places.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specmtp.decoding.accept import Proposal
from specmtp.decoding.compiled import CompiledDecoder, Places
from specmtp.decoding.cudagraph import CudaGraphDecoder, capture
from specmtp.decoding.graphs import Compiled
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.round import Round, emit
from specmtp.decoding.state import State, tensors
from specmtp.ledger.timing import Clock

PARTS = ("draft", "verify", "accept", "cache", "host")
"""Drafting; the target's forward; sampling, accepting and emitting; rings and records; the loop around the rounds."""
BLOCK, WARM = 10, 3
"""Rounds whose parts are timed one after another, in the order of a round, and rounds before them that are not."""
EMPTY = "(empty)"
"""A graph that does next to nothing; no drafter can be called so."""

Call = Callable[[], object]


class RoundParts:
    """The parts of an arm's round, prepared once: graphs where the arm's round is a graph, op by op where it is not."""

    def __init__(self, decoder: Decoder, context: Sequence[int], batch: int) -> None:
        """
        Args:
            decoder: the arm's, with its target, drafter and sampler.
            context: committed ids to decode from, at least a window.
            batch: rows.
        """
        self.decoder = decoder
        state, _ = decoder.prefill([list(context)] * batch)
        device, gamma = state.length_B.device, decoder.gamma
        logits_BNV = torch.randn(batch, gamma + 1, decoder.target.config.vocab_size, device=device)
        made = Proposal(
            torch.randint(logits_BNV.shape[-1], (batch, gamma), device=device),
            torch.rand(batch, gamma, logits_BNV.shape[-1], device=device).softmax(-1),
            torch.full((batch,), gamma, device=device),
        )
        uniform_BU = torch.rand(batch, 2 * gamma + 1, device=device)
        noise, active_B = Noise.split(uniform_BU), torch.ones(batch, dtype=torch.bool, device=device)
        p_BNV = logits_BNV.softmax(-1)
        played = emit(p_BNV, made, decoder.accept_rule(p_BNV, made, noise), active_B)
        h_BND = torch.zeros(
            batch, gamma + 1, decoder.target.config.d_model, device=device, dtype=state.cache.keys[0].dtype
        )
        temperature = torch.tensor(float(decoder.sampler.temperature), device=device)
        tape = None
        if isinstance(decoder, CompiledDecoder):
            places, _ = decoder.ready(state, state.length_B + 1)
            state, tape, temperature = places.state, places.tape, places.temperature

        def sampled(temperature: Tensor) -> Any:
            return decoder.graph_sampler(temperature) if isinstance(decoder, CompiledDecoder) else decoder.sampler

        def draft(state: State, temperature: Tensor, v_BG: Tensor) -> tuple[Tensor, Tensor]:
            found = decoder.drafter.propose(state, sampled(temperature), v_BG)
            return found.drafts_BG, found.q_BGV

        def accepted(
            logits_BNV: Tensor, temperature: Tensor, drafts: Tensor, q: Tensor, num: Tensor, uniform_BU: Tensor
        ) -> Tensor:
            made, p_BNV = Proposal(drafts, q, num), sampled(temperature)(logits_BNV)
            found = emit(p_BNV, made, decoder.accept_rule(p_BNV, made, Noise.split(uniform_BU)), active_B)
            return torch.cat([found.emitted_BN, found.count_B[:, None], found.verdict.beta_BG.long()], 1)

        def cache(state: State, h_BND: Tensor) -> None:
            state.write(state.length_B, played.emitted_BN)
            decoder.drafter.observe(state.drafter, state.length_B - 1, h_BND)
            if tape is not None:
                tape.next_1.zero_()
                tape.write(played)

        prepare = partial(prepared, decoder)
        self._calls = {"draft": prepare(draft, state, temperature, noise.draft_v_BG)} if gamma else {}
        self._calls |= {
            "verify": prepare(verification(decoder, gamma + 1), state),
            "accept": prepare(
                accepted, logits_BNV, temperature, made.drafts_BG, made.q_BGV, made.num_drafts_B, uniform_BU
            ),
            "cache": prepare(cache, state, h_BND),
        }
        if tape is not None:
            self._calls[EMPTY] = empty_round(decoder)
        idle = idle_twin(decoder, played)
        begin, _ = idle.prefill([list(context)] * batch)
        self._host = lambda rounds: idle.play_rounds(begin, rounds * (gamma + 1), 0)

    def seconds(self, clock: Clock, rounds: int) -> dict[str, float]:
        """Seconds of every part, timed once; what calling a graph costs is in the host's part alone.

        Args:
            clock: times calls.
            rounds: of a generation, over which the host's work at its beginning and end is spread.
        """
        found = dict.fromkeys([*PARTS, EMPTY], 0.0)
        for turn in range(-WARM, BLOCK):
            for name, call in self._calls.items():
                seconds = clock.time(call)[1]
                found[name] += seconds / BLOCK if turn >= 0 else 0.0
        empty = found.pop(EMPTY)
        found = {name: max(value - empty, 0.0) for name, value in found.items()}
        return found | {"host": clock.time(lambda: self._host(rounds))[1] / rounds}


def prepared(decoder: Decoder, function: Callable[..., Any], *args: Any) -> Call:
    """A function as this decoder's rounds are run: a graph, a captured one, or as it is."""
    if not isinstance(decoder, CompiledDecoder):
        return partial(function, *args)
    call = Compiled(function, decoder.target.lm_head.weight.device).bound(*args)
    return capture(call) if isinstance(decoder, CudaGraphDecoder) else call


def empty_round(decoder: Decoder) -> Call:
    """What calling a graph of this decoder's kind costs: one that does next to nothing."""
    return prepared(decoder, lambda x: x + 1, torch.zeros(1, device=decoder.target.lm_head.weight.device))


def verification(decoder: Decoder, tokens: int) -> Callable[[State], Tensor]:
    """The target's forward over so many tokens from the pending one on, as far as the logits."""

    def verify(state: State) -> Tensor:
        start_B = state.length_B - 1
        ids_BN = state.tokens(start_B, tokens)
        h_BND = decoder.target.hidden(ids_BN, state.cache, state.cache.geometry(start_B, tokens))
        return decoder.target.logits(h_BND)

    return verify


class IdleRounds(Decoder):
    """A decoder whose rounds compute nothing: what is left is the loop, noise and trace included."""

    played: Round

    def play(self, state: State, noise: Noise, active_B: Tensor) -> tuple[State, Round]:
        self.check_own(state)
        return state.advanced(self.played.count_B), self.played


class IdleGraph(CompiledDecoder):
    """A decoder whose graph reads its places and moves the length on, and no more."""

    def _play(self, places: Places) -> None:
        touched = torch.stack([t.reshape(-1)[0].float() for t in tensors(places) if t.numel()]).sum()
        places.state.length_B.add_(self.gamma + 1 + (0 * touched).long())
        places.tape.next_1.add_(1)


class IdleCudaGraph(IdleGraph, CudaGraphDecoder):
    """The same, captured."""


def idle_twin(decoder: Decoder, played: Round) -> Decoder:
    """A decoder with the same loop whose rounds do nothing; each emits all places of ``played``."""
    if isinstance(decoder, CompiledDecoder):
        kind = IdleCudaGraph if isinstance(decoder, CudaGraphDecoder) else IdleGraph
        return kind(decoder.target, decoder.drafter, decoder.sampler, batch=decoder.batch)
    twin = IdleRounds(decoder.target, decoder.drafter, decoder.sampler)
    full_B = torch.full_like(played.count_B, decoder.gamma + 1)
    twin.played = Round(played.proposal, played.verdict, played.emitted_BN, full_B, played.p_BNV)
    return twin
