"""The whole bench: checks, costs, timings, and the ledger as plain data."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.analysis.exact_acceptance import draft_overlap, mtp_overlap
from specmtp.analysis.exactness import CAUSAL_LIMIT, causal_difference
from specmtp.data.windows import validation_windows
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import PLAIN, Arm, choose_arms, make_decoder
from specmtp.ledger.measure import Decoders, GreedyTask, Progress, forward_seconds, run_checks, time_arms
from specmtp.ledger.models import Models, Say, model_json, validation_ids
from specmtp.ledger.provenance import provenance
from specmtp.ledger.rows import Json, greedy_json, make_rows, sampling_json, verdict_line
from specmtp.ledger.timing import clock_for

SCHEMA_VERSION = 1
SAMPLE_TOKENS = 240
OWN_TEXT_TOKENS = 3000
LOW_PRECISION_CAUSAL_LIMIT = 0.1
"""In bf16 other shapes take other kernels; a logit moves by roundings, never by what stands behind it."""


@dataclass(frozen=True)
class Settings:
    """How a bench runs."""

    prompt: str
    tokens: int
    repeats: int
    seed: int
    sampler: Sampler
    gammas: list[int] | None
    uncached: bool
    device: torch.device
    dtype: torch.dtype
    threads: int


def num_steps(models: Models, settings: Settings) -> int:
    """How often ``build_ledger`` tells its progress."""
    arms = len(choose_arms(models.methods, settings.gammas, settings.uncached))
    return 3 + (len(greedy_tasks([0] * OWN_TEXT_TOKENS)) + 2 + settings.repeats) * arms


def build_ledger(models: Models, settings: Settings, say: Say, progress: Progress) -> Json:
    """Runs everything and returns the ledger.

    Raises:
        ValueError: the prompt has a character the models do not know.
    """
    prompt = models.target.vocabulary.encode(settings.prompt, "the prompt").tolist()
    torch.set_num_threads(os.cpu_count() or 1)
    for checkpoint in models.checkpoints:
        checkpoint.net.to(device=settings.device, dtype=settings.dtype)
    target, draft = models.target.net, models.draft.net.gpt if models.draft else None
    arms = choose_arms(models.methods, settings.gammas, settings.uncached)
    decoders = {arm: make_decoder(arm, models.target, models.draft, settings.sampler) for arm in arms}
    clock = clock_for(settings.device)

    val_N, reason = validation_ids(models.target)
    if val_N is not None and len(val_N) < OWN_TEXT_TOKENS:
        reason = f"the validation text has {len(val_N)} of the {OWN_TEXT_TOKENS} characters the checks take"
    if reason:
        say(f"note: {reason}; the checks use the model's own text instead")
    progress("causal check")
    text = val_N.tolist() if val_N is not None and not reason else own_text(decoders, models)
    context = text[500:564]  # the reference experiment's places
    causal = causal_difference(target.gpt, torch.tensor(text[1000:1064], device=settings.device))
    causal_limit = CAUSAL_LIMIT if settings.dtype == torch.float32 else LOW_PRECISION_CAUSAL_LIMIT
    checks = run_checks(decoders, greedy_tasks(text), context, settings.seed, progress)
    progress("acceptance over the validation text")
    exact = exact_acceptance(models, settings.sampler, val_N)
    torch.set_num_threads(settings.threads)  # from here on the clock counts
    progress("one forward of each network")
    costs = forward_seconds(target, draft, clock, settings.uncached)
    measured = time_arms(decoders, [prompt], settings.tokens, settings.repeats, settings.seed, clock, progress)

    corpus = models.target.metrics.get("corpus") or {}
    where = provenance(settings.device, settings.dtype, settings.threads)
    common = {k: where[k] for k in ("device", "dtype", "threads")} | {"batch": 1, "prompts": 1}
    rows = make_rows(measured, checks, costs, exact, settings.tokens, settings.sampler, common)
    cached = [row for row in rows if row["backend"] != "uncached"]
    shown = max(cached, key=lambda r: r["speedup"]["median"] if r["speedup"] and r["method"] != PLAIN else 0)
    trace = measured[Arm(shown["method"], shown["gamma"])].traces[0]
    vocabulary, shown_tokens = models.target.vocabulary, min(settings.tokens, SAMPLE_TOKENS)
    return {
        "schema_version": SCHEMA_VERSION,
        "provenance": {
            **where,
            "clock": clock.name,
            "seed": settings.seed,
            "repeats": settings.repeats,
            "prompt": settings.prompt,
            "corpus": {k: corpus.get(k) for k in ("name", "sha256")},
        },
        "models": {c.role: model_json(c) for c in models.checkpoints},
        "costs": [cost_json(name, seconds, target.gpt.config.attention_window) for name, seconds in costs.items()],
        "checks": {
            "passed": causal <= causal_limit and all(checks.passed(arm) for arm in arms),
            "causal_max_abs_diff": causal,
            "causal_limit": causal_limit,
            "greedy": [greedy_json(arm, check) for arm, found in checks.greedy.items() for check in found],
            "sampling": [
                sampling_json(arm, check, vocabulary.symbols, vocabulary.decode(context))
                for arm, check in checks.sampling.items()
            ],
        },
        "rows": rows,
        "sample": {
            "row": shown["id"],
            "label": shown["label"],
            "text": vocabulary.decode(trace.tokens(0)[:shown_tokens]),
            "marks": trace.marks(0)[:shown_tokens],
            "tokens_by_round": trace.tokens_by_round(0),
        },
        "verdict": verdict_line(rows),
    }


def cost_json(name: str, seconds: float, window: int) -> Json:
    """The cost of one forward as plain data; an uncached one encodes a whole window."""
    model, _, uncached = name.partition("_")
    backend, tokens = ("uncached", window) if uncached else ("eager", 1)
    return {"model": model, "backend": backend, "tokens": tokens, "ms": 1000 * seconds}


@torch.inference_mode()
def own_text(decoders: Decoders, models: Models) -> list[int]:
    """A sample of the target's own, for checks where its validation text is not at hand."""
    newline = models.target.vocabulary.symbols.find("\n")
    return decoders[Arm(PLAIN, 0)].generate([[max(newline, 0)]], OWN_TEXT_TOKENS, seed=0).tokens[0]


def greedy_tasks(text: list[int]) -> list[GreedyTask]:
    """20 prompts of 8 characters × 48 tokens, inside the window, and 3 prompts × 600, far past it."""
    stride = min(997, (len(text) - 8) // 20)
    return [
        GreedyTask([text[i * stride : i * stride + 8] for i in range(20)], 48),
        GreedyTask([text[i * stride : i * stride + 8] for i in (0, 7, 14)], 600),
    ]


def exact_acceptance(models: Models, sampler: Sampler, val_N: Tensor | None, batch: int = 128) -> dict[str, float]:
    """alpha_exact by method: Σ min(p, q) of the first draft, over the whole validation text; empty without it."""
    if val_N is None:
        return {}
    target, draft = models.target.net, models.draft
    sums: dict[str, list[tuple[float, int]]] = {"draft": [], "mtp": []}
    for windows_BW in validation_windows(val_N, 64).to(target.gpt.lm_head.weight.device).split(batch):
        if draft:
            sums["draft"].append(draft_overlap(target, draft.net.gpt, sampler, windows_BW))
        sums["mtp"] += mtp_overlap(target, sampler, windows_BW)[:1]
    return {name: sum(s for s, _ in pairs) / sum(n for _, n in pairs) for name, pairs in sums.items() if pairs}
