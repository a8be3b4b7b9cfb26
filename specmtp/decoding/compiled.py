"""Rounds through torch.compile: the same function of (state, noise), one graph a drafter, gamma and batch size.

Shapes: B rows, G drafts (gamma).
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specmtp.decoding.accept import AcceptRule, accept
from specmtp.decoding.drafters import Drafter
from specmtp.decoding.loop import Decoder, check_budget
from specmtp.decoding.noise import Noise, uniform_stream
from specmtp.decoding.round import Round, play_round
from specmtp.decoding.sampling import GREEDY_BELOW, Sampler
from specmtp.decoding.state import State
from specmtp.nn.gpt import GPT

OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    "cpp_wrapper": True,  # kernels are called from C++, not one by one from Python
    "realize_opcount_threshold": 6,  # what is used twice is kept: else every score computes its rotary angles anew
}
"""Of torch.compile's inductor; what each is worth stands in LOG.md."""


class GraphSampler:
    """A ``Sampler`` whose temperature is a tensor, so that one graph serves all temperatures, 0 among them."""

    def __init__(self, temperature: Tensor, filters: Sampler) -> None:
        self.temperature, self.filters = temperature, filters

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        greedy = self.temperature < GREEDY_BELOW
        best = F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        return torch.where(greedy, best, self.filters(logits / torch.where(greedy, 1.0, self.temperature)))


class CompiledDecoder(Decoder):
    """A decoder whose rounds are compiled; everything else, prefill included, is eager.

    The first round compiles (tens of seconds; cached on disk between processes), for the number of CPU threads of that
    moment. After it, the guards of the compiled function are skipped: they cost as much as a quarter of a step, and
    inputs never change their kind.
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
        self._compiled: Callable[..., tuple[State, Round]] = compiled(MethodType(fresh(type(self)._round), self))
        self._first_seconds: dict[bool, float] = {}

    def with_sampler(self, sampler: Sampler) -> "CompiledDecoder":
        """The same decoder with another sampler; it shares the graph where only the temperature differs."""
        if (sampler.top_k, sampler.top_p) != (self.sampler.top_k, self.sampler.top_p):
            return type(self)(self.target, self.drafter, sampler, self.accept_rule, self.batch)
        other = copy.copy(self)
        other.sampler = sampler
        return other

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
        with self._ready(state):
            pass

    @property
    def compile_seconds(self) -> float:
        """What the first rounds took: compiling, or reading from the cache on disk."""
        return sum(self._first_seconds.values())

    def play(self, state: State, noise: Noise, active_B: Tensor) -> tuple[State, Round]:
        """One round."""
        uniform = torch.cat([noise.draft_v_BG, noise.accept_u_BG, noise.emit_v_B[:, None]], 1)
        end_B = state.length_B + active_B
        with self._ready(state):
            return self._compiled(state, uniform, end_B, self._temperature())

    def play_rounds(
        self, state: State, num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> list[Round]:
        """As ``Decoder.play_rounds``; without a stop token the host does nothing between rounds but call the graph."""
        if stop_token is not None:
            return super().play_rounds(state, num_tokens, seed, stop_token)
        check_budget(num_tokens)
        end_B = state.length_B + num_tokens
        uniforms = uniform_stream(seed, len(end_B), self.gamma, end_B.device)
        rounds: list[Round] = []
        remaining, temperature = num_tokens, self._temperature()
        with self._ready(state):
            while remaining > 0:
                for _ in range(-(-remaining // (self.gamma + 1))):
                    state, played = self._compiled(state, next(uniforms), end_B, temperature)
                    rounds.append(played)
                remaining = int((end_B - state.length_B).max())
        return rounds

    def _round(self, state: State, uniform: Tensor, end_B: Tensor, temperature: Tensor) -> tuple[State, Round]:
        """A round in which the rows short of their end are active."""
        sampler: Any = GraphSampler(temperature, Sampler(1.0, self.sampler.top_k, self.sampler.top_p))
        active_B = state.length_B < end_B
        return play_round(self.target, self.drafter, sampler, self.accept_rule, state, Noise.split(uniform), active_B)

    @contextmanager
    def _ready(self, state: State) -> Iterator[None]:
        """Compiled for states like this one (by a round in which no row is active), and free of guards."""
        kind = torch.is_inference_mode_enabled()
        if kind not in self._first_seconds:
            began = time.perf_counter()
            uniform = torch.zeros(self.batch, 2 * self.gamma + 1, device=state.length_B.device)
            self._compiled(state, uniform, state.length_B.clone(), self._temperature())
            self._first_seconds[kind] = time.perf_counter() - began
        with unguarded():
            yield

    def _temperature(self) -> Tensor:
        """Made anew for every call: a tensor of another inference mode would be another graph."""
        return torch.tensor(float(self.sampler.temperature), device=self.target.lm_head.weight.device)


def compiled_call(call: "partial[Tensor]") -> Callable[[], object]:
    """A compiled twin of a call that always has the same arguments; compiled now, so that guards can be left out."""
    twin = partial(compiled(fresh(call.func)), *call.args)
    twin()
    return twin


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one graph of fixed shapes."""
    return torch.compile(function, fullgraph=True, dynamic=False, options=OPTIONS)


def fresh(function: Any) -> Any:
    """The function with a code object of its own: graphs are kept by code object, and without guards not told apart."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


@contextmanager
def unguarded() -> Iterator[None]:
    """Calls of compiled functions without guard checks."""
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
        yield
