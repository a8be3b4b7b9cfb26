"""Where the time of a compiled round goes: every part measured on its own, what is left over shown; the roofline.

Shapes: B = 1 row, G drafts (gamma), N = G + 1 places.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from specmtp.analysis.roofline import round_work
from specmtp.decoding.accept import Proposal, accept
from specmtp.decoding.compiled import CompiledDecoder, Places
from specmtp.decoding.graphs import Compiled, empty_call
from specmtp.decoding.noise import Noise
from specmtp.decoding.round import emit
from specmtp.decoding.state import State
from specmtp.ledger.arms import PLAIN, Arm
from specmtp.ledger.timing import Clock, median_seconds
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Json = dict[str, Any]
Name = TypeVar("Name", bound=Hashable)
MOST_TOKENS = 9
"""v(n) is measured for n from 1 to this."""
BLOCK, REPEATS = 20, 31
"""Calls in a row that are timed together, as in a generation, and how often."""
BUDGET = 640
"""Tokens of the generation whose host part is measured."""


class Idle(CompiledDecoder):
    """A decoder whose round reads its places and moves the length on, and no more: what is left is the host."""

    def _play(self, places: Places) -> None:
        touched = torch.stack([t.reshape(-1)[0].float() for t in _read(places)]).sum()
        places.state.length_B.add_(self.gamma + 1 + (0 * touched).long())
        places.tape.next_1.add_(1)


def _read(places: Places) -> list[Tensor]:
    state, tape = places.state, places.tape
    read = [*state.cache.keys, *state.cache.values, state.token_BS, places.end_B, places.uniform_RBU]
    return [*read, places.temperature, tape.whole, tape.p_BNV]


@torch.inference_mode()
def parts(decoder: CompiledDecoder, context: Sequence[int], clock: Clock) -> dict[str, float]:
    """Median seconds of the parts of a round at batch 1: draft, verify, accept, cache and host.

    Each part is a graph of its own, the cost of calling a graph taken off; the host part is a generation with rounds
    that compute nothing, calls and noise and tape included.
    """
    state, _ = decoder.prefill([list(context)])
    places, _ = decoder.ready(state, state.length_B + 1)
    temperature, gamma, device = places.temperature, decoder.gamma, places.end_B.device
    uniform = torch.rand(1, 2 * gamma + 1, device=device)
    noise = Noise.split(uniform)
    vocab = decoder.target.config.vocab_size
    p_BNV = torch.rand(1, gamma + 1, vocab, device=device).softmax(-1)
    proposal = Proposal(
        torch.randint(vocab, (1, gamma), device=device),
        torch.rand(1, gamma, vocab, device=device).softmax(-1),
        torch.full((1,), gamma, device=device),
    )
    active_B = torch.ones(1, dtype=torch.bool, device=device)
    played = emit(p_BNV, proposal, accept(p_BNV, proposal, noise), active_B)
    h_BND = torch.zeros(1, gamma + 1, decoder.target.config.d_model, device=device, dtype=state.cache.keys[0].dtype)

    def draft(state: State, temperature: Tensor, v_BG: Tensor) -> tuple[Tensor, Tensor]:
        made = decoder.drafter.propose(state, decoder.graph_sampler(temperature), v_BG)
        return made.drafts_BG, made.q_BGV

    def accepted(p_BNV: Tensor, drafts: Tensor, q: Tensor, num: Tensor, uniform: Tensor) -> Tensor:
        made = Proposal(drafts, q, num)
        found = emit(p_BNV, made, accept(p_BNV, made, Noise.split(uniform)), active_B)
        return torch.cat([found.emitted_BN, found.count_B[:, None], found.verdict.beta_BG.long()], 1)

    def cache(places: Places, h_BND: Tensor) -> None:
        places.state.write(places.state.length_B, played.emitted_BN)
        decoder.drafter.observe(places.state.drafter, places.state.length_B - 1, h_BND)
        places.tape.next_1.zero_()
        places.tape.write(played)

    calls = {
        "empty": empty_call(device),
        "verify": bound(device, _verify(decoder, gamma + 1), state, temperature),
        "accept": bound(device, accepted, p_BNV, proposal.drafts_BG, proposal.q_BGV, proposal.num_drafts_B, uniform),
        "cache": bound(device, cache, places, h_BND),
    }
    if gamma:
        calls["draft"] = bound(device, draft, state, temperature, noise.draft_v_BG)
    seconds = _in_blocks(clock, calls)
    empty = seconds.pop("empty")
    found = {name: max(value - empty, 0.0) for name, value in seconds.items()}
    idle = Idle(decoder.target, decoder.drafter, decoder.sampler)
    start, _ = idle.prefill([list(context)])
    host = median_seconds(clock, {"host": lambda: idle.play_rounds(start, BUDGET, 0)}, 15)["host"]
    return {"draft": 0.0, **found, "host": host / -(-BUDGET // (gamma + 1))}


def _in_blocks(clock: Clock, calls: Mapping[Name, Callable[[], Any]]) -> dict[Name, float]:
    """Median seconds of a call; timed in turns, but many calls in a row: weights stay as near as they are in a loop."""

    def block(call: Callable[[], Any]) -> None:
        for _ in range(BLOCK):
            call()

    seconds = median_seconds(clock, {name: partial(block, call) for name, call in calls.items()}, REPEATS)
    return {name: value / BLOCK for name, value in seconds.items()}


def bound(device: torch.device, function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """The bare call of a function's graph."""
    return Compiled(function, device).bound(*args)


def _verify(decoder: CompiledDecoder, tokens: int) -> Callable[[State, Tensor], Tensor]:
    target = decoder.target

    def verify(state: State, temperature: Tensor) -> Tensor:
        start_B = state.length_B - 1
        ids_BN = state.tokens(start_B, tokens)
        h_BND = target.hidden(ids_BN, state.cache, state.cache.geometry(start_B, tokens))
        return decoder.graph_sampler(temperature)(target.logits(h_BND))

    return verify


@torch.inference_mode()
def verify_seconds(decoder: CompiledDecoder, context: Sequence[int], clock: Clock) -> dict[int, float]:
    """Median seconds of a target forward over n tokens, distributions included, n = 1..9; timed in turns."""
    state, _ = decoder.prefill([list(context)])
    device = state.length_B.device
    temperature = torch.tensor(float(decoder.sampler.temperature), device=device)
    calls: dict[int, Callable[[], Any]] = {0: empty_call(device)}
    calls |= {n: bound(device, _verify(decoder, n), state, temperature) for n in range(1, MOST_TOKENS + 1)}
    seconds = _in_blocks(clock, calls)
    return {n: seconds[n] - seconds[0] for n in range(1, MOST_TOKENS + 1)}


@torch.inference_mode()
def machine_rates(clock: Clock, working_set: float, device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Bytes a second of reading a working set of so many bytes again and again, and operations a second of products.

    The first is the better of a sum and a matrix-vector product, the second of square products of three sizes.
    """
    width = dtype.itemsize
    side = max(int((working_set / width) ** 0.5), 64)
    matrix, vector = (torch.rand(shape, device=device).to(dtype) for shape in ((side, side), (side,)))
    reads = {"sum": lambda: matrix.sum(), "product": lambda: matrix @ vector}
    bandwidth = side * side * width / min(median_seconds(clock, reads, 100).values())
    rates = []
    for size in (256, 512, 1024):
        square = torch.rand(size, size, device=device).to(dtype)
        rates.append(2 * size**3 / median_seconds(clock, {"mm": lambda x=square: x @ x}, 20)["mm"])  # type: ignore[misc]
    return bandwidth, max(rates)


def worth_json(row: Json, v: Mapping[int, float]) -> Json:
    """A row's tokens a forward ÷ (v(γ+1)/v(1) + γ·c): what these costs alone would allow."""
    ratio = v[row["gamma"] + 1] / v[1]
    tokens = row["tokens_per_target_forward"]
    return {
        "row": row["id"],
        "tokens_per_target_forward": tokens,
        "verify_ratio": ratio,
        "c": row["c"],
        "speedup": tokens / (ratio + row["gamma"] * row["c"]),
    }


def roofline_json(
    rows: Sequence[Json],
    rates: tuple[float, float],
    target: MultiTokenGPT,
    draft: GPT | None,
) -> list[Json]:
    """Bytes and operations of a round of every cached row, the floor they set, and how far above it the row is."""
    config, small, width = target.gpt.config, draft.config if draft else None, target.gpt.lm_head.weight.itemsize
    found = []
    for row in rows:
        if row["window_rule"] != "sliding":
            continue
        work = round_work(row["method"], row["gamma"], config, small, target.mtp.depth, row["batch"], width)
        floor = 1e6 * work.seconds(*rates) / (row["tokens_per_target_forward"] * row["batch"])
        measured = 1e3 * row["ms_per_token"]
        found.append(
            {
                "row": row["id"],
                "bytes": work.bytes,
                "flops": work.flops,
                "floor_us_per_token": floor,
                "measured_us_per_token": measured,
                "measured_over_floor": measured / floor,
            }
        )
    return found


def parts_json(row: Json, seconds: Mapping[str, float]) -> Json:
    """A row's round in microseconds: measured, its parts, and what they leave unexplained."""
    measured = 1e6 * row["seconds"]["median"] * row["generations"] / row["rounds"]
    parts = {name: 1e6 * value for name, value in seconds.items()}
    return {"row": row["id"], "round_us": measured, **parts, "unexplained": measured - sum(parts.values())}


def profiled(arm: Arm) -> bool:
    """Whether an arm's parts are measured: compiled, batch 1, sampled."""
    return arm.backend == "compile" and arm.batch == 1 and not arm.greedy


def profile_json(
    decoders: Mapping[Arm, Any],
    rows: Mapping[Arm, Json],
    context: Sequence[int],
    clock: Clock,
    target: MultiTokenGPT,
    draft: GPT | None,
    progress: Callable[[str], None],
) -> Json:
    """The whole profile of the arms that are profiled, as plain data.

    Args:
        decoders: by arm; compiled plain at batch 1 among them, on whose target v(n) is measured.
        rows: the ledger's rows by arm.
        context: committed ids to decode from, at least a window.
        clock: times calls.
        target: the target, of whose weights the bandwidth is measured.
        draft: the draft model, where there is one.
        progress: told what comes next.
    """
    plain = next(arm for arm in rows if profiled(arm) and arm.method == PLAIN)
    progress("profile: verification of 1 to 9 tokens")
    v = verify_seconds(decoders[plain], context, clock)
    found = []
    for arm in filter(profiled, rows):
        progress(f"profile: {arm.label}")
        found.append(parts_json(rows[arm], parts(decoders[arm], context, clock)))
    weight = target.gpt.lm_head.weight
    working_set = weight.itemsize * sum(p.numel() for p in target.gpt.parameters())
    rates = machine_rates(clock, working_set, weight.device, weight.dtype)
    drafting = [arm for arm in rows if profiled(arm) and arm.method != PLAIN and arm.gamma < MOST_TOKENS]
    return {
        "bandwidth_bytes_per_second": rates[0],
        "matrix_flops_per_second": rates[1],
        "verify": [{"tokens": n, "us": 1e6 * seconds, "ratio": seconds / v[1]} for n, seconds in v.items()],
        "parts": found,
        "worth": [worth_json(rows[arm], v) for arm in drafting],
        "roofline": roofline_json(list(rows.values()), rates, target, draft),
    }
