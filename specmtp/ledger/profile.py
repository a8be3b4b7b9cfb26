"""What verifying several tokens costs, what costs alone would allow, and how far rounds are above the floor."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from specmtp.analysis.roofline import round_work
from specmtp.decoding.loop import Decoder
from specmtp.ledger.arms import GRAPHS, Drafters, is_usual_row
from specmtp.ledger.parts import empty_round, prepared, verification
from specmtp.ledger.timing import Clock, median_seconds
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Json = dict[str, Any]
Progress = Callable[[str], None]
MOST_TOKENS = 9
"""v(n) is measured for n from 1 to this."""
IN_A_ROW, REPEATS = 20, 31
"""Calls timed together, and how often."""


@torch.inference_mode()
def verify_seconds(decoder: Decoder, context: Sequence[int], clock: Clock) -> dict[int, float]:
    """Median seconds of a target forward over n tokens, as far as the logits, n = 1..9; timed in turns."""
    state, _ = decoder.prefill([list(context)])
    numbers = range(1, MOST_TOKENS + 1)
    calls = {n: prepared(decoder, verification(decoder, n), state) for n in numbers}
    calls[0] = empty_round(decoder)
    seconds = median_seconds(clock, {n: partial(in_a_row, call) for n, call in calls.items()}, REPEATS)
    return {n: (seconds[n] - seconds[0]) / IN_A_ROW for n in numbers}


def in_a_row(call: Callable[[], object]) -> None:
    """Many calls, so that weights stay as near as they are in a loop."""
    for _ in range(IN_A_ROW):
        call()


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
    target: GPT,
    drafters: Drafters,
) -> list[Json]:
    """Bytes and operations of a round of every cached row, the floor they set, and how far above it the row is."""
    width = target.lm_head.weight.itemsize
    found = []
    for row in rows:
        if row["window_rule"] != "sliding":
            continue
        net = drafters.get(row["method"])
        draft = net.config if isinstance(net, GPT) else None
        depth = net.mtp.depth if isinstance(net, MultiTokenGPT) else 0
        work = round_work(target.config, row["gamma"], row["batch"], width, draft, depth)
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


def profile_json(
    plain: Decoder,
    rows: Sequence[Json],
    context: Sequence[int],
    clock: Clock,
    target: GPT,
    drafters: Drafters,
    progress: Progress,
) -> Json:
    """The whole profile as plain data.

    Args:
        plain: plain decoding of graphs at batch 1, on whose target v(n) is measured.
        rows: the ledger's rows.
        context: committed ids to decode from, at least a window.
        clock: times calls.
        target: the target, of whose weights the bandwidth is measured.
        drafters: what the rows' drafters run.
        progress: told what comes next.
    """
    progress("profile: verification of 1 to 9 tokens")
    v = verify_seconds(plain, context, clock)
    weight = target.lm_head.weight
    working_set = weight.itemsize * sum(p.numel() for p in target.parameters())
    rates = machine_rates(clock, working_set, weight.device, weight.dtype)
    shown = [row for row in rows if is_profiled(row)]
    return {
        "bandwidth_bytes_per_second": rates[0],
        "matrix_flops_per_second": rates[1],
        "verify": [{"tokens": n, "us": 1e6 * seconds, "ratio": seconds / v[1]} for n, seconds in v.items()],
        "worth": [worth_json(row, v) for row in shown if 0 < row["gamma"] < MOST_TOKENS],
        "roofline": roofline_json(rows, rates, target, drafters),
    }


def is_profiled(row: Json) -> bool:
    """Whether a row is of a graph at batch 1, sampled: those v(n) is measured for."""
    return is_usual_row(row) and row["batch"] == 1 and row["backend"] in GRAPHS
