"""What a reader may look at closely: one round of every gamma, and one position with all its probabilities."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from specmtp.analysis.joint_check import uncertain_contexts
from specmtp.analysis.sampling_check import SamplingCheck, check_sampling
from specmtp.data.seeding import mix
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import PLAIN, YARDSTICK, Arm, make_decoder
from specmtp.ledger.checks import Checks
from specmtp.ledger.models import Models
from specmtp.ledger.rows import Json

Contexts = Sequence[list[int]]
MOST_GAMMA = 8
TRIES = 32
MOST_SYMBOLS = 512
"""Symbols of a position that keep an entry of their own."""


def closeup_json(
    models: Models, sampler: Sampler, checks: Checks, decoders: Mapping[Arm, AnyDecoder], contexts: Contexts, seed: int
) -> Json:
    """Both, as plain data."""
    return {
        "rounds": recorded_rounds(models, sampler, contexts[0], seed),
        "positions": positions(checks, decoders, contexts, models.target.vocabulary, seed),
    }


@torch.inference_mode()
def recorded_rounds(models: Models, sampler: Sampler, context: list[int], seed: int) -> list[Json]:
    """One round of every drafter and every gamma from 1 to 8, all of the same noise, after one context.

    The noise is the first of 32 for which a round of eight accepts some drafts and then rejects one, so that there is
    something to see; the first of all where none does.
    """
    generator = torch.Generator().manual_seed(mix(seed))
    uniform = torch.rand(TRIES, 2 * MOST_GAMMA + 1, generator=generator)
    decode = models.target.vocabulary.decode
    found: list[Json] = []
    for method in models.drafters:
        chosen, first = None, len(found)
        for gamma in range(MOST_GAMMA, 0, -1):
            decoder = make_decoder(Arm(method, gamma), models.target.net, models.drafters, sampler)
            device = decoder.target.lm_head.weight.device
            v_BG, u_BG = uniform[:, :gamma], uniform[:, MOST_GAMMA : MOST_GAMMA + gamma]
            noise = Noise.split(torch.cat([v_BG, u_BG, uniform[:, -1:]], 1).to(device))
            state, _ = decoder.prefill([context])
            active_B = torch.ones(TRIES, dtype=torch.bool, device=device)
            _, played = decoder.play(decoder.expand(state, TRIES), noise, active_B)
            accepted = played.verdict.num_accepted_B.tolist()
            if int(played.proposal.num_drafts_B[0]) < gamma:  # a lookup that finds nothing drafts nothing
                break
            if chosen is None:
                chosen = next((i for i, n in enumerate(accepted) if 0 < n < MOST_GAMMA), 0)
            found.insert(
                first,
                {
                    "method": method,
                    "gamma": gamma,
                    "context": decode(context),
                    "drafts": [decode([i]) for i in played.proposal.drafts_BG[chosen].tolist()],
                    "q": played.verdict.q_draft_BG[chosen].tolist(),
                    "p": played.verdict.p_draft_BG[chosen].tolist(),
                    "u": u_BG[chosen].tolist(),
                    "accepted": accepted[chosen],
                    "next": decode([int(played.verdict.next_token_B[chosen])]),
                },
            )
    return found


def positions(
    checks: Checks, decoders: Mapping[Arm, AnyDecoder], contexts: Contexts, vocabulary: Vocabulary, seed: int
) -> list[Json]:
    """Every drafter's p, q and sampled frequencies of all symbols at two positions: that of the sampling check, and the
    one where the target is least certain.
    """
    found: list[Json] = []
    yardstick = decoders[YARDSTICK]
    (uncertain,) = uncertain_contexts(yardstick.target, yardstick.sampler, contexts[1:], 1)
    for method in dict.fromkeys(arm.method for arm in checks.sampling if arm.method != PLAIN):
        arms = [a for a in checks.sampling if a.method == method and a.is_usual and not a.uncached]
        if not arms:
            continue
        arm = max(arms, key=lambda a: (checks.sampling[a].draws, -a.gamma))
        check = checks.sampling[arm]
        other = check_sampling(decoders[arm], uncertain, check.draws, mix(seed), 1)
        found.append(position_json(arm, check, vocabulary, contexts[0]))
        found.append(position_json(arm, other, vocabulary, uncertain))
    return found


def position_json(arm: Arm, check: SamplingCheck, vocabulary: Vocabulary, context: list[int]) -> Json:
    """A position as plain data; beyond the most probable 512 symbols all others are one, whose name is empty."""
    assert check.q is not None
    laws_3V = np.array([check.p, check.q, check.frequency])
    order_V = np.argsort(-laws_3V[:2].max(0), kind="stable")
    kept, rest = order_V[:MOST_SYMBOLS], order_V[MOST_SYMBOLS:]
    columns = laws_3V[:, kept]
    if len(rest):
        columns = np.append(columns, laws_3V[:, rest].sum(1, keepdims=True), 1)
    p, q, frequency = ([float(f"{x:.7g}") for x in row] for row in columns)
    return {
        "method": arm.method,
        "gamma": arm.gamma,
        "backend": arm.backend,
        "context": vocabulary.decode(context),
        "draws": check.draws,
        "accepted": check.accepted,
        "beta": check.beta,
        "tv": check.tv,
        "tv_limit": check.tv_limit,
        "tv_draft": check.tv_draft,
        "symbols": [vocabulary.symbols[i] for i in kept] + [""] * bool(len(rest)),
        "p": p,
        "q": q,
        "frequency": frequency,
    }
