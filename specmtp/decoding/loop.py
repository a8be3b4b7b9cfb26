"""The loop: prompts in, exactly so many tokens out, round after round.

Shapes: B rows, T tokens of a prefill chunk.
"""

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from specmtp.decoding.accept import AcceptRule, accept
from specmtp.decoding.drafters import Drafter
from specmtp.decoding.noise import CHUNK_ROUNDS, Noise, noise_stream
from specmtp.decoding.round import Round, play_round
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import State
from specmtp.decoding.trace import Trace
from specmtp.nn.cache import KVCache, positions, ring_slots
from specmtp.nn.gpt import GPT


@dataclass(frozen=True)
class Generation:
    """New tokens of every row, cut to the budget and at the stop token, and the trace of the whole rounds."""

    tokens: list[list[int]]
    trace: Trace | None
    """None where no round was played (a budget of 0)."""


class AnyDecoder(Protocol):
    """What checks and clocks ask of a decoder; its state is its own affair."""

    target: GPT
    sampler: Sampler

    @property
    def batch(self) -> int | None: ...
    @property
    def gamma(self) -> int: ...
    def with_sampler(self, sampler: Sampler) -> "AnyDecoder": ...
    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, int]: ...
    def expand(self, state: Any, batch: int) -> Any: ...
    def play(self, state: Any, noise: Noise, active_B: Tensor) -> tuple[Any, Round]: ...
    def play_rounds(self, state: Any, num_tokens: int, seed: int | None = None) -> Trace | None: ...
    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: int, seed: int | None = None) -> Generation: ...


MARKS = itertools.count()
"""Tells decoders apart."""


class Decoder:
    """A target with a drafter: the decoder of callbacks and bench alike. Nothing is kept between calls."""

    batch: int | None = None
    """Rows that it is built for; None takes any number."""

    def __init__(
        self, target: GPT, drafter: Drafter, sampler: Sampler | None = None, accept_rule: AcceptRule = accept
    ) -> None:
        self.target, self.drafter, self.accept_rule = target, drafter, accept_rule
        self.sampler = sampler or Sampler()
        self._mark = next(MARKS)

    @property
    def gamma(self) -> int:
        return self.drafter.gamma

    def with_sampler(self, sampler: Sampler) -> Self:
        """The same decoder with another sampler; states of one are states of the other."""
        other = copy.copy(self)
        other.sampler = sampler
        return other

    def check_own(self, state: State) -> None:
        """
        Raises:
            ValueError: the state was made by another decoder.
        """
        if state.owner != self._mark:
            raise ValueError(
                "this state was prefilled by another decoder, and its caches are built for that one's drafter, gamma "
                "and batch: prefill the prompts with this decoder"
            )

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[State, int]:
        """The state after prompts of any length, each with at least one token, and the number of target forwards.

        Chunks have one size for all rows. A row that needs no full chunk more is fed its last chunk again, which
        changes nothing.

        Raises:
            ValueError: no prompt, an empty one, or an id outside the vocabulary.
        """
        config = self.target.config
        if not prompts or not all(len(p) for p in prompts):
            raise ValueError("every prompt needs at least one token: for an empty prompt give a newline")
        if any(not 0 <= i < config.vocab_size for p in prompts for i in p):
            raise ValueError(f"a prompt has an id outside the vocabulary of {config.vocab_size} symbols")
        device, dtype = self.target.lm_head.weight.device, self._cache_dtype()
        gamma, lookahead = self.gamma, self.drafter.lookahead
        cache = KVCache.create(config, len(prompts), ring_slots(config, gamma), device, dtype)
        chunk = min(cache.max_tokens, self.drafter.max_tokens or cache.max_tokens)
        length_B = torch.tensor([len(p) for p in prompts])
        num_chunks = -(-(int(length_B.max()) - 1) // chunk)
        ring = max(64, 4 * (gamma + lookahead + 1))
        # every row is fed whole chunks, so prompts are padded with a legal id behind
        width = max(int(length_B.max()), chunk) + lookahead + ring
        ids_BT = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids_BT[row, : len(prompt)] = torch.as_tensor(prompt)
        ids_BT, length_B = ids_BT.to(device), length_B.to(device)
        state = State(
            length_B,
            torch.zeros(len(prompts), ring, dtype=torch.long, device=device),
            cache,
            self.drafter.begin(len(prompts), device, dtype),
            self._mark,
        )
        for i in range(num_chunks):
            start_B = torch.minimum(torch.full_like(length_B, i * chunk), (length_B - 1 - chunk).clamp(min=0))
            chunk_BT = ids_BT.gather(1, positions(start_B, chunk + lookahead))
            h_BTD = self.target.hidden(chunk_BT[:, :chunk], cache, cache.geometry(start_B, chunk))
            self.drafter.prefill(state.drafter, start_B, chunk_BT, h_BTD)
        start_B = (length_B - ring // 2).clamp(min=0)
        state.write(start_B, ids_BT.gather(1, positions(start_B, ring // 2)))
        return state, num_chunks

    def play(self, state: State, noise: Noise, active_B: Tensor) -> tuple[State, Round]:
        """One round.

        Raises:
            ValueError: as ``check_own``.
        """
        self.check_own(state)
        return play_round(self.target, self.drafter, self.sampler, self.accept_rule, state, noise, active_B)

    def expand(self, state: State, batch: int) -> State:
        """The state of one row, copied to so many."""
        return State(
            state.length_B.repeat(batch),
            state.token_BS.repeat(batch, 1),
            state.cache.expand(batch),
            self.drafter.expand(state.drafter, batch),
            state.owner,
        )

    def run_rounds(self, state: State, num_rounds: int, seed: int | None = None) -> Trace:
        """The trace of a fixed number of rounds, every row active throughout."""
        active_B = torch.ones_like(state.length_B, dtype=torch.bool)
        pieces: list[Trace] = []
        for noise, _ in zip(self._noise(state, seed), range(num_rounds), strict=False):
            state, played = self.play(state, noise, active_B)
            pieces.append(Trace.of([played]))  # a round's distributions are not kept
        return Trace.joined(pieces)

    def play_rounds(
        self, state: State, num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> Trace | None:
        """The trace of whole rounds until every row has ``num_tokens`` more tokens or has emitted the stop token.

        A row that is done is frozen. The host looks at the counts only when the slowest row can have finished. A trace
        takes some hundred bytes a round and row; nothing else grows with the number of tokens. None for no tokens.

        Raises:
            ValueError: num_tokens is negative or not a whole number.
        """
        check_budget(num_tokens)
        end_B = state.length_B + num_tokens
        active_B = torch.full_like(end_B, num_tokens > 0, dtype=torch.bool)
        noise, remaining = self._noise(state, seed), num_tokens
        rounds: list[Round] = []
        pieces: list[Trace] = []
        while remaining > 0:
            for _ in range(-(-remaining // (self.gamma + 1))):
                state, played = self.play(state, next(noise), active_B)
                rounds.append(played)
                active_B = active_B & (state.length_B < end_B)
                if stop_token is not None:
                    active_B = active_B & ~_emits(played, stop_token)
                if len(rounds) == CHUNK_ROUNDS:
                    pieces.append(Trace.of(rounds))
                    rounds = []
            remaining = int(torch.where(active_B, end_B - state.length_B, 0).max())
        pieces += [Trace.of(rounds)] if rounds else []
        return Trace.joined(pieces) if pieces else None

    def decode(
        self, state: State, num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> Generation:
        """Exactly ``num_tokens`` new tokens a row from a state, fewer where the stop token ends a row (it is kept).

        Raises:
            ValueError: num_tokens is negative or not a whole number.
        """
        trace = self.play_rounds(state, num_tokens, seed, stop_token)
        if trace is None:
            return Generation([[] for _ in state.length_B], None)
        rows = range(len(state.length_B))
        return Generation([cut(trace.tokens(row), num_tokens, stop_token) for row in rows], trace)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        seed: int | None = None,
        stop_token: int | None = None,
    ) -> Generation:
        """Prefill and decode.

        Raises:
            ValueError: as ``prefill`` and ``decode``; the budget is looked at before any forward.
        """
        check_budget(num_tokens)
        state, _ = self.prefill(prompts)
        return self.decode(state, num_tokens, seed, stop_token)

    def _noise(self, state: State, seed: int | None) -> Iterator[Noise]:
        return noise_stream(seed, len(state.length_B), self.gamma, state.length_B.device)

    def _cache_dtype(self) -> torch.dtype:
        """The dtype in which keys will come: autocast's where it is on, else the weights'."""
        weight = self.target.lm_head.weight
        kind = weight.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def filled_batches(prompts: Sequence[list[int]], batch: int) -> Iterator[list[list[int]]]:
    """Prompts in groups of a size, the last one filled up with its first prompt.

    >>> list(filled_batches([[1], [2], [3]], 2))
    [[[1], [2]], [[3], [3]]]
    """
    for first in range(0, len(prompts), batch):
        group = list(prompts[first : first + batch])
        yield group + group[:1] * (batch - len(group))


def check_budget(num_tokens: int) -> None:
    """
    Raises:
        ValueError: num_tokens is negative or not a whole number.
    """
    if isinstance(num_tokens, bool) or not isinstance(num_tokens, int) or num_tokens < 0:
        raise ValueError(f"the number of tokens must be a whole number from 0, got {num_tokens!r}")


def _emits(played: Round, token: int) -> Tensor:
    place_N = torch.arange(played.emitted_BN.shape[1], device=played.emitted_BN.device)
    return ((played.emitted_BN == token) & (place_N < played.count_B[:, None])).any(1)


def cut(tokens: list[int], num_tokens: int, stop_token: int | None) -> list[int]:
    """Tokens cut to the budget and behind the first stop token."""
    tokens = tokens[:num_tokens]
    return tokens[: tokens.index(stop_token) + 1] if stop_token in tokens else tokens
