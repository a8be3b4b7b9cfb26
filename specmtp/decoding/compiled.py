"""Rounds as graphs: the same function of (state, noise), with the host out of the way.

Shapes: B rows, G drafts (gamma), R rounds of a chunk, U = 2·G + 1 uniforms a round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from specmtp.decoding.accept import AcceptRule, accept
from specmtp.decoding.drafters import Drafter
from specmtp.decoding.graphs import Compiled, cache_hits
from specmtp.decoding.loop import Decoder, check_budget
from specmtp.decoding.noise import CHUNK_ROUNDS, Noise, uniform_chunks
from specmtp.decoding.round import Round, play_round
from specmtp.decoding.sampling import GREEDY_BELOW, Sampler
from specmtp.decoding.state import State
from specmtp.decoding.tape import Tape
from specmtp.decoding.trace import Trace
from specmtp.nn.gpt import GPT


class GraphSampler:
    """A ``Sampler`` whose temperature is a tensor, so that one graph serves all temperatures, 0 among them."""

    def __init__(self, temperature: Tensor, filters: Sampler) -> None:
        self.temperature, self.filters = temperature, filters

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        greedy = self.temperature < GREEDY_BELOW
        best = F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        return torch.where(greedy, best, self.filters(logits / torch.where(greedy, 1.0, self.temperature)))


@dataclass(frozen=True)
class Places:
    """All that a graph reads and writes. It moves the state's length on in place."""

    state: State
    end_B: Tensor
    """The length at which a row is done."""
    uniform_RBU: Tensor
    temperature: Tensor
    tape: Tape


class CompiledDecoder(Decoder):
    """A decoder whose rounds are one graph each; everything else, prefill included, is eager.

    The first call compiles (tens of seconds; cached on disk between processes), for the number of CPU threads of that
    moment. Noise lies ready for many rounds, and what happened is written down on a tape, so that between the rounds
    the host does nothing but call.
    """

    batch: int

    def __init__(
        self,
        target: GPT,
        drafter: Drafter,
        sampler: Sampler | None = None,
        accept_rule: AcceptRule = accept,
        batch: int = 1,
    ) -> None:
        """
        Args:
            target: as of ``Decoder``, and so are the next three.
            drafter: proposes drafts.
            sampler: logits to distributions.
            accept_rule: which drafts stay.
            batch: rows of every round.
        """
        super().__init__(target, drafter, sampler, accept_rule)
        self.batch = batch
        self._graph = Compiled(self._play, target.lm_head.weight.device, batch * (self.gamma + 1))
        self._first_seconds: dict[bool, float] = {}
        self.from_cache: bool | None = None
        """Whether the last graph came from the cache on disk; None before there is one."""

    def with_sampler(self, sampler: Sampler) -> Self:
        """The same decoder with another sampler; it shares the graph where only the temperature differs."""
        if (sampler.top_k, sampler.top_p) != (self.sampler.top_k, self.sampler.top_p):
            return type(self)(self.target, self.drafter, sampler, self.accept_rule, self.batch)
        return super().with_sampler(sampler)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[State, int]:
        """As ``Decoder.prefill``.

        Raises:
            ValueError: another number of prompts than the batch it is built for.
        """
        if len(prompts) != self.batch:
            raise ValueError(f"this decoder is compiled for a batch of {self.batch}, got {len(prompts)} prompts")
        return super().prefill(prompts)

    def warm_up(self) -> None:
        """Compiles now, or takes the graph from the cache on disk."""
        state, _ = self.prefill([[0]] * self.batch)
        self.ready(state, state.length_B)

    @property
    def compile_seconds(self) -> float:
        """What the first calls took: compiling, or reading from the cache on disk."""
        return sum(self._first_seconds.values())

    def play(self, state: State, noise: Noise, active_B: Tensor) -> tuple[State, Round]:
        """One round.

        Raises:
            ValueError: as ``check_own``.
        """
        self.check_own(state)
        places, call = self.ready(state, state.length_B + active_B)
        places.uniform_RBU[0] = torch.cat([noise.draft_v_BG, noise.accept_u_BG, noise.emit_v_B[:, None]], 1)
        call()
        return self._left(places), places.tape.first()

    def play_rounds(
        self, state: State, num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> Trace | None:
        """As ``Decoder.play_rounds``; with a stop token, which the graph knows nothing of, round by round."""
        if stop_token is not None:
            return super().play_rounds(state, num_tokens, seed, stop_token)
        check_budget(num_tokens)
        self.check_own(state)
        pieces: list[Trace] = []
        remaining = num_tokens
        places, call = self.ready(state, state.length_B + num_tokens)
        uniforms = uniform_chunks(seed, self.batch, self.gamma, places.end_B.device)
        while remaining > 0:
            places.uniform_RBU.copy_(next(uniforms))
            places.tape.next_1.zero_()
            played = 0
            while remaining > 0 and played < CHUNK_ROUNDS:
                rounds = min(-(-remaining // (self.gamma + 1)), CHUNK_ROUNDS - played)
                for _ in range(rounds):
                    call()
                played += rounds
                remaining = int((places.end_B - places.state.length_B).max())
            pieces.append(places.tape.trace(played))
        return Trace.joined(pieces) if pieces else None

    def _play(self, places: Places) -> None:
        """The graph: a round in which the rows short of their end are active."""
        sampler = self.graph_sampler(places.temperature)
        state, tape = places.state, places.tape
        noise = Noise.split(places.uniform_RBU.index_select(0, tape.next_1)[0])
        active_B = state.length_B < places.end_B
        left, played = play_round(self.target, self.drafter, sampler, self.accept_rule, state, noise, active_B)
        tape.write(played)
        state.length_B.copy_(left.length_B)

    def graph_sampler(self, temperature: Tensor) -> Any:
        """The sampler inside graphs: this decoder's, but for the temperature."""
        return GraphSampler(temperature, Sampler(1.0, self.sampler.top_k, self.sampler.top_p))

    def ready(self, state: State, end_B: Tensor) -> tuple[Places, Callable[[], object]]:
        """The places of rounds from this state, and the call that plays one."""
        places = self._places(state, end_B)
        return places, self._bound(places)

    def _bound(self, places: Places) -> Callable[[], object]:
        began, hits = time.perf_counter(), cache_hits()
        call = self._graph.bound(places, dry=True)
        kind = torch.is_inference_mode_enabled()
        if kind not in self._first_seconds:
            self._first_seconds[kind] = time.perf_counter() - began
            self.from_cache = cache_hits() > hits
        return call

    def _places(self, state: State, end_B: Tensor) -> Places:
        device, config = end_B.device, self.target.config
        return Places(
            replace(state, length_B=state.length_B.clone()),
            end_B.clone(),
            torch.zeros(CHUNK_ROUNDS, self.batch, 2 * self.gamma + 1, device=device),
            torch.tensor(float(self.sampler.temperature), device=device),
            Tape.create(CHUNK_ROUNDS, self.batch, self.gamma, config.vocab_size, device),
        )

    def _left(self, places: Places) -> State:
        """The state that a call left behind."""
        return places.state
