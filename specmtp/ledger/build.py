"""The whole bench: checks, costs, timings, and the ledger as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from specmtp.analysis.exactness import CAUSAL_LIMIT, causal_difference
from specmtp.analysis.planner import Plan
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.loop import AnyDecoder, Decoder
from specmtp.decoding.state import tensors
from specmtp.ledger import plan
from specmtp.ledger.acceptance import exact_acceptance, temperature_json
from specmtp.ledger.arms import GRAPHS, PLAIN, UNCACHED, YARDSTICK, Arm
from specmtp.ledger.cells import fastest_row, verdict_line
from specmtp.ledger.check_rows import bigram_json, greedy_json, joint_json, sampling_json, twin_json
from specmtp.ledger.checks import bigram_arms, run_checks
from specmtp.ledger.closeup import closeup_json
from specmtp.ledger.measure import Progress, forward_seconds, time_arms
from specmtp.ledger.model_rows import models_json, mtp_effect
from specmtp.ledger.models import Models, Say
from specmtp.ledger.parts import RoundParts
from specmtp.ledger.precision import LEAST_REPEATS, Patience, precision_json, precision_sentence
from specmtp.ledger.profile import profile_json
from specmtp.ledger.provenance import provenance
from specmtp.ledger.rows import Json, make_rows, sample_json, samples_json
from specmtp.ledger.rule_gains import compared_arms, rule_gains
from specmtp.ledger.setup import (
    LEAST_CHECK_TEXT,
    NUM_CALIBRATION_PROMPTS,
    Settings,
    Setup,
    graphs_that_draft,
    greedy_tasks,
    set_up,
)
from specmtp.ledger.timing import cpu_threads

SCHEMA_VERSION = 1
SAMPLE_TOKENS = 240
RULE_ROUNDS = 20_480
"""Rounds in which accept rules are compared, at most."""
LOW_PRECISION_CAUSAL_LIMIT = 0.1
"""In bf16 other shapes take other kernels; a logit moves by roundings, never by what stands behind it."""


def num_steps(models: Models, settings: Settings) -> int:
    """How often ``build_ledger`` tells its progress."""
    arms = settings.arms(models.drafters)
    checked = {YARDSTICK, *(arm.checked_as for arm in arms)}
    compiled = sum(arm.backend in GRAPHS for arm in arms)
    checks = (len(greedy_tasks([0] * LEAST_CHECK_TEXT)) + 2) * len(checked)
    checks += len(bigram_arms(checked, settings.sampler))
    checks += len(graphs_that_draft(checked)) + len(compared_arms(arms))
    calibrated = (1 + plan.REPEATS * NUM_CALIBRATION_PROMPTS) * sum(map(plan.planned, arms))
    repeats = settings.repeats or LEAST_REPEATS
    timed = (1 + repeats * settings.prompts) * len(arms)
    return 4 + compiled + checks + calibrated + len(settings.taken_apart(arms)) + timed + settings.profile


def build_plan(models: Models, settings: Settings, say: Say, progress: Progress) -> list[Json]:
    """Only the planner's calibration, and what it predicts.

    Raises:
        ValueError: as ``set_up``.
    """
    setup = set_up(models, settings, say, progress)
    with cpu_threads(settings.threads):
        return plan.planner_json(plan_of(setup, settings, progress), [])


def plan_of(setup: Setup, settings: Settings, progress: Progress) -> dict[plan.Group, Plan]:
    """The plan of the arms of a bench."""
    return plan.calibrate(setup.timed, setup.calibration_prompts, settings.seed, setup.clock, progress)


def build_ledger(models: Models, settings: Settings, say: Say, progress: Progress) -> Json:
    """Runs everything and returns the ledger.

    Raises:
        ValueError: as ``set_up``.
    """
    setup = set_up(models, settings, say, progress)
    arms, decoders, contexts, clock = setup.arms, setup.decoders, setup.contexts, setup.clock
    target, drafters = models.target.net, models.drafters
    vocabulary = models.target.vocabulary
    progress("causal check")
    causal = causal_difference(target.gpt, torch.tensor(setup.text[1000:1064], device=settings.device))
    causal_limit = CAUSAL_LIMIT if settings.dtype == torch.float32 else LOW_PRECISION_CAUSAL_LIMIT
    checks = run_checks(
        {arm: decoders[arm] for arm in setup.checked},
        greedy_tasks(setup.text),
        contexts,
        settings.draws,
        settings.seed,
        settings.threads,
        progress,
        setup.twins,
    )
    rounds = max(min(settings.draws // 2, RULE_ROUNDS), 1)
    gains = rule_gains(
        arms, settings.rules, target, drafters, settings.sampler, contexts, rounds, settings.seed, progress
    )
    progress("acceptance over whole texts")
    texts = {
        "validation": [] if setup.val_N is None else [setup.val_N.tolist()],
        "own": [] if settings.sampler.greedy else setup.own,
    }
    progress("a close look at rounds and positions")
    closeup = closeup_json(models, settings.sampler, checks, decoders, contexts, settings.seed)
    exact = {name: exact_acceptance(models, settings.sampler, found) if found else {} for name, found in texts.items()}
    progress("one forward of each network")
    with cpu_threads(settings.threads):
        costs = forward_seconds(target.gpt, drafters, clock, [*settings.backends, *[UNCACHED] * settings.uncached])
        plans = plan_of(setup, settings, progress)
        parts = prepare_parts(decoders, settings.taken_apart(arms), contexts[0], progress)
        patience = Patience(settings.seconds)
        measured = time_arms(
            setup.timed,
            setup.prompts,
            settings.tokens,
            settings.repeats,
            settings.seed,
            clock,
            progress,
            parts,
            patience.enough if settings.repeats is None else lambda _: False,
        )

    repeats = 1 + max(sample.repeat for sample in measured[arms[0]].samples)
    precision = precision_json(measured, auto=settings.repeats is None)
    if settings.repeats is None:
        say(precision_sentence(precision, repeats))
    where = provenance(settings.device, settings.dtype, settings.threads)
    common = {k: where[k] for k in ("device", "dtype", "threads")} | {"prompts": len(setup.prompts)}
    own = {arm: decoder_json(decoders[arm], contexts[0]) for arm in arms}
    rows = make_rows(measured, checks, costs, exact, settings.tokens, settings.sampler, common, own)
    shown, trained = sample_arm(arms, rows), models_json(models)
    profile, graphs = None, [arm for arm in parts if arm.backend in GRAPHS and (arm.method, arm.batch) == (PLAIN, 1)]
    if graphs:
        with cpu_threads(settings.threads):
            profile = profile_json(parts[graphs[0]].decoder, rows, contexts[0], clock, target.gpt, drafters, progress)
    corpus = models.target.metrics.get("corpus") or {}
    return {
        "schema_version": SCHEMA_VERSION,
        "provenance": {
            **where,
            "config": settings.json(),
            "clock": clock.name,
            "seed": settings.seed,
            "repeats": repeats,
            "precision": precision,
            "prompt": settings.prompt,
            "prompts": [vocabulary.decode(ids) for ids in setup.prompts],
            "corpus": {k: corpus.get(k) for k in ("name", "sha256")},
            "validation_text_missing": setup.val_missing,
        },
        "models": trained,
        "costs": [cost_json(*key, seconds, target.gpt.config.attention_window) for key, seconds in costs.items()],
        "checks": {
            "passed": causal <= causal_limit and all(checks.passed(arm) for arm in arms if arm.lossless),
            "causal_max_abs_diff": causal,
            "causal_limit": causal_limit,
            "greedy": [greedy_json(arm, check) for arm, found in checks.greedy.items() for check in found],
            "sampling": [
                sampling_json(arm, check, vocabulary.symbols, vocabulary.decode(contexts[0]))
                for arm, check in checks.sampling.items()
            ],
            "bigram": [bigram_json(arm, check) for arm, check in checks.bigrams.items()],
            "drafts": [twin_json(arm, check) for arm, check in checks.twins.items()],
            "mtp_effect": mtp_effect(trained),
            "joint": [
                joint_json(arm, check, vocabulary.decode(check.context))
                for arm, found in checks.joint.items()
                for check in found
            ],
        },
        "rows": rows,
        "samples": samples_json(measured),
        "acceptance_by_temperature": temperature_json(settings.sampler, exact),
        "rules": gains,
        "planner": plan.planner_json(plans, rows),
        "profile": profile,
        "closeup": closeup | {"samples": samples_by_method(arms, rows, measured, vocabulary, settings.tokens)},
        "sample": sample_json(shown, measured[shown].traces[0], vocabulary, min(settings.tokens, SAMPLE_TOKENS)),
        "verdict": verdict_line(rows),
        "fastest": fastest["id"] if (fastest := fastest_row(rows)) else None,
    }


@torch.inference_mode()
def decoder_json(decoder: AnyDecoder, context: list[int]) -> Json:
    """What a row says of its decoder: compiling it, or reading its graph from the cache, and the bytes of its state."""
    compiled = decoder if isinstance(decoder, CompiledDecoder) else None
    cached = isinstance(decoder, Decoder)
    state = decoder.prefill([context] * (decoder.batch or 1))[0] if cached else None
    return {
        "compile_seconds": compiled.compile_seconds if compiled else None,
        "compile_from_cache": compiled.from_cache if compiled else None,
        "cache_bytes": sum(t.nbytes for t in tensors(state)) // len(state.length_B) if state else None,
    }


@torch.inference_mode()
def prepare_parts(
    decoders: Mapping[Arm, Any], arms: Sequence[Arm], context: list[int], progress: Progress
) -> dict[Arm, RoundParts]:
    """The parts of arms' rounds, ready to be timed; graphs of greedy twins are those of the sampled ones."""
    parts: dict[Arm, RoundParts] = {}
    for arm in arms:
        progress(f"parts of {arm.label}")
        twin = replace(arm, greedy=False)
        shared = arm.greedy and arm.backend in GRAPHS
        parts[arm] = parts[twin] if shared else RoundParts(decoders[arm], context, arm.batch)
    return parts


def samples_by_method(
    arms: Sequence[Arm], rows: Sequence[Json], measured: Mapping[Arm, Any], vocabulary: Vocabulary, tokens: int
) -> list[Json]:
    """A sample of every drafter's fastest cached arm."""
    found = []
    for method in dict.fromkeys(arm.method for arm in arms if arm.method != PLAIN):
        own = [(arm, row) for arm, row in zip(arms, rows, strict=True) if arm.method == method]
        best = sample_arm([arm for arm, _ in own], [row for _, row in own])
        found.append(sample_json(best, measured[best].traces[0], vocabulary, min(tokens, SAMPLE_TOKENS)))
    return found


def sample_arm(arms: Sequence[Arm], rows: Sequence[Json]) -> Arm:
    """The arm whose text is shown: the fastest cached lossless drafter, plain where none was timed."""
    exact = [(arm, row) for arm, row in zip(arms, rows, strict=True) if arm.lossless]
    shown = [(row["speedup"]["median"], arm) for arm, row in exact if row["speedup"]]
    drafted = [(speedup, arm) for speedup, arm in shown if arm.method != PLAIN and not (arm.uncached or arm.greedy)]
    return max(drafted, key=lambda pair: pair[0])[1] if drafted else arms[0]


def cost_json(model: str, backend: str, seconds: float, window: int) -> Json:
    """The cost of one forward as plain data; an uncached one encodes a whole window."""
    return {"model": model, "backend": backend, "tokens": window if backend == UNCACHED else 1, "ms": 1000 * seconds}
