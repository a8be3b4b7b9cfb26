"""The whole bench: checks, costs, timings, and the ledger as plain data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from specmtp.analysis.exactness import CAUSAL_LIMIT, causal_difference
from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.acceptance import exact_acceptance, own_texts, temperature_json
from specmtp.ledger.arms import GRAPHS, PLAIN, UNCACHED, YARDSTICK, Arm, choose_arms, make_decoders
from specmtp.ledger.checks import GreedyTask, bigram_arms, run_checks
from specmtp.ledger.measure import Progress, forward_seconds, time_arms
from specmtp.ledger.memory import check_fits, memory_of
from specmtp.ledger.models import Models, Say, models_json, mtp_effect, validation_ids
from specmtp.ledger.profile import profile_json
from specmtp.ledger.profile import profiled as is_profiled
from specmtp.ledger.provenance import provenance
from specmtp.ledger.rows import (
    Json,
    bigram_json,
    greedy_json,
    joint_json,
    make_rows,
    sample_json,
    sampling_json,
    verdict_line,
)
from specmtp.ledger.timing import clock_for, cpu_threads

SCHEMA_VERSION = 1
SAMPLE_TOKENS = 240
CONTEXT_TOKENS, NUM_CONTEXTS = 64, 256
LEAST_CHECK_TEXT = 3000
"""Characters from which prompts and contexts of the checks are taken."""
LOW_PRECISION_CAUSAL_LIMIT = 0.1
"""In bf16 other shapes take other kernels; a logit moves by roundings, never by what stands behind it."""


@dataclass(frozen=True)
class Settings:
    """How a bench runs."""

    prompt: str
    tokens: int
    repeats: int
    draws: int
    """Rounds of the sampling check at gamma 1, of which other arms take a part; tokens of the bigram check."""
    seed: int
    sampler: Sampler
    gammas: list[int] | None
    graph_gammas: list[int] | None
    backends: list[str]
    batches: list[int]
    uncached: bool
    greedy: bool
    device: torch.device
    dtype: torch.dtype
    threads: int
    profile: bool = False

    def arms(self, methods: Sequence[str]) -> list[Arm]:
        """The arms of these methods."""
        return choose_arms(
            methods, self.gammas, self.backends, self.batches, self.uncached, self.greedy, self.graph_gammas
        )

    def json(self) -> Json:
        """As plain data."""
        return {**asdict(self), "device": self.device.type, "dtype": str(self.dtype).removeprefix("torch.")}


def num_steps(models: Models, settings: Settings) -> int:
    """How often ``build_ledger`` tells its progress."""
    arms = settings.arms(models.methods)
    checked = {YARDSTICK, *(arm.checked_as for arm in arms)}
    compiled = sum(arm.backend in GRAPHS for arm in arms)
    checks = (len(greedy_tasks([0] * LEAST_CHECK_TEXT)) + 2) * len(checked)
    checks += len(bigram_arms(checked, settings.sampler))
    profiled = sum(map(is_profiled, arms)) + 1 if settings.profile else 0
    return 3 + compiled + checks + (1 + settings.repeats) * len(arms) + profiled


def build_ledger(models: Models, settings: Settings, say: Say, progress: Progress) -> Json:
    """Runs everything and returns the ledger.

    Raises:
        ValueError: the prompt has a character the models do not know.
    """
    prompt = models.target.vocabulary.encode(settings.prompt, "the prompt").tolist()
    for checkpoint in models.checkpoints:
        checkpoint.net.to(device=settings.device, dtype=settings.dtype)
    target, draft = models.target.net, models.draft.net.gpt if models.draft else None
    arms = settings.arms(models.methods)
    shapes = target.gpt.config, draft.config if draft else None, target.mtp.depth
    check_fits(arms, *shapes, settings.dtype.itemsize, memory_of(settings.device))
    checked = list(dict.fromkeys([YARDSTICK, *(arm.checked_as for arm in arms)]))
    decoders = make_decoders([*checked, *arms], models.target, models.draft, settings.sampler)
    vocabulary, clock = models.target.vocabulary, clock_for(settings.device)

    for arm, decoder in decoders.items():
        if isinstance(decoder, CompiledDecoder):
            progress(f"compiling {arm.label} (half a minute the first time)")
            with torch.inference_mode(), cpu_threads(settings.threads):
                decoder.warm_up()

    val_N, why_not = validation_ids(models.target)
    own = own_texts(decoders[YARDSTICK], vocabulary.symbols)
    text = check_text(val_N, own)
    if val_N is not None and len(val_N) < LEAST_CHECK_TEXT:
        why_not = f"the validation text has {len(val_N)} of the {LEAST_CHECK_TEXT} characters the checks take"
    if why_not:
        say(f"note: {why_not}; the checks use the model's own text instead")
    progress("causal check")
    contexts = sampling_contexts(text)
    causal = causal_difference(target.gpt, torch.tensor(text[1000:1064], device=settings.device))
    causal_limit = CAUSAL_LIMIT if settings.dtype == torch.float32 else LOW_PRECISION_CAUSAL_LIMIT
    checks = run_checks(
        {arm: decoders[arm] for arm in checked},
        greedy_tasks(text),
        contexts,
        settings.draws,
        settings.seed,
        settings.threads,
        progress,
    )
    progress("acceptance over whole texts")
    texts = {"validation": [] if val_N is None else [val_N.tolist()], "own": [] if settings.sampler.greedy else own}
    exact = {name: exact_acceptance(models, settings.sampler, found) if found else {} for name, found in texts.items()}
    progress("one forward of each network")
    with cpu_threads(settings.threads):
        costs = forward_seconds(target, draft, clock, [*settings.backends, *[UNCACHED] * settings.uncached])
        measured = time_arms(
            {arm: decoders[arm] for arm in arms},
            [prompt],
            settings.tokens,
            settings.repeats,
            settings.seed,
            clock,
            progress,
        )

    where = provenance(settings.device, settings.dtype, settings.threads)
    common = {k: where[k] for k in ("device", "dtype", "threads")} | {"prompts": 1}
    compiled = {arm: d for arm, d in decoders.items() if isinstance(d, CompiledDecoder)}
    compile_seconds = {arm: (d.compile_seconds, d.from_cache) for arm, d in compiled.items()}
    rows = make_rows(measured, checks, costs, exact, settings.tokens, settings.sampler, common, compile_seconds)
    shown, trained = sample_arm(arms, rows), models_json(models)
    profile = None
    if settings.profile and any(map(is_profiled, arms)):
        by_arm = dict(zip(arms, rows, strict=True))
        with cpu_threads(settings.threads):
            profile = profile_json(decoders, by_arm, contexts[0], clock, target, draft, progress)
    corpus = models.target.metrics.get("corpus") or {}
    return {
        "schema_version": SCHEMA_VERSION,
        "provenance": {
            **where,
            "config": settings.json(),
            "clock": clock.name,
            "seed": settings.seed,
            "repeats": settings.repeats,
            "prompt": settings.prompt,
            "corpus": {k: corpus.get(k) for k in ("name", "sha256")},
            "validation_text_missing": why_not if val_N is None else None,
        },
        "models": trained,
        "costs": [cost_json(*key, seconds, target.gpt.config.attention_window) for key, seconds in costs.items()],
        "checks": {
            "passed": causal <= causal_limit and all(checks.passed(arm) for arm in arms),
            "causal_max_abs_diff": causal,
            "causal_limit": causal_limit,
            "greedy": [greedy_json(arm, check) for arm, found in checks.greedy.items() for check in found],
            "sampling": [
                sampling_json(arm, check, vocabulary.symbols, vocabulary.decode(contexts[0]))
                for arm, check in checks.sampling.items()
            ],
            "bigram": [bigram_json(arm, check) for arm, check in checks.bigrams.items()],
            "mtp_effect": mtp_effect(trained),
            "joint": [
                joint_json(arm, check, vocabulary.decode(check.context))
                for arm, found in checks.joint.items()
                for check in found
            ],
        },
        "rows": rows,
        "acceptance_by_temperature": temperature_json(settings.sampler, exact),
        "planner": None,
        "profile": profile,
        "sample": sample_json(shown, measured[shown].traces[0], vocabulary, min(settings.tokens, SAMPLE_TOKENS)),
        "verdict": verdict_line(rows),
    }


def sample_arm(arms: Sequence[Arm], rows: Sequence[Json]) -> Arm:
    """The arm whose text is shown: the fastest cached drafter, plain where none was timed."""
    shown = [(row["speedup"]["median"], arm) for arm, row in zip(arms, rows, strict=True) if row["speedup"]]
    drafted = [(speedup, arm) for speedup, arm in shown if arm.method != PLAIN and not (arm.uncached or arm.greedy)]
    return max(drafted, key=lambda pair: pair[0])[1] if drafted else arms[0]


def cost_json(model: str, backend: str, seconds: float, window: int) -> Json:
    """The cost of one forward as plain data; an uncached one encodes a whole window."""
    return {"model": model, "backend": backend, "tokens": window if backend == UNCACHED else 1, "ms": 1000 * seconds}


def check_text(val_N: Tensor | None, own: list[list[int]]) -> list[int]:
    """What prompts and contexts of the checks are taken from: validation text, else the model's own."""
    if val_N is not None and len(val_N) >= LEAST_CHECK_TEXT:
        return val_N.tolist()
    return [token for row in own for token in row]


def sampling_contexts(text: list[int]) -> list[list[int]]:
    """The reference experiment's context, then others spread evenly over the text."""
    stride = (len(text) - CONTEXT_TOKENS) // NUM_CONTEXTS
    starts = [500, *(i * stride for i in range(NUM_CONTEXTS))]
    return [text[start : start + CONTEXT_TOKENS] for start in starts]


def greedy_tasks(text: list[int]) -> list[GreedyTask]:
    """20 prompts of 8 characters × 48 tokens, inside the window, and × 600, far past it."""
    stride = min(997, (len(text) - 8) // 20)
    prompts = [text[i * stride : i * stride + 8] for i in range(20)]
    return [GreedyTask(prompts, 48), GreedyTask(prompts, 600)]
