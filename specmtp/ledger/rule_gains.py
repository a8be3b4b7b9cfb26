"""What other accept rules keep of every drafter's drafts, as plain data."""

from collections.abc import Sequence

from specmtp.analysis.rule_comparison import RuleGain, compare_rules
from specmtp.decoding.loop import Decoder
from specmtp.decoding.rules import RULES
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import Arm, Drafters, make_decoder
from specmtp.ledger.measure import Progress
from specmtp.ledger.rows import Json
from specmtp.nn.mtp import MultiTokenGPT

PROMPTS = 64


def compared_arms(arms: Sequence[Arm]) -> list[Arm]:
    """A drafter and gamma each that has rows of several rules."""
    return list(dict.fromkeys(Arm(arm.method, arm.gamma) for arm in arms if not arm.is_usual))


def rule_gains(
    arms: Sequence[Arm],
    rules: Sequence[str],
    target: MultiTokenGPT,
    drafters: Drafters,
    sampler: Sampler,
    contexts: Sequence[list[int]],
    rounds: int,
    seed: int,
    progress: Progress,
) -> list[Json]:
    """Every rule's tokens a round beside the usual one's, at the same states; nothing where there is but one rule.

    Args:
        arms: the bench's.
        rules: their rules.
        target: the target.
        drafters: what every drafter runs.
        sampler: logits to distributions.
        contexts: to go on from, of which the first 64 are taken.
        rounds: of a drafter and gamma.
        seed: of the noise.
        progress: told what comes next.
    """
    found = []
    for arm in compared_arms(arms):
        progress(f"rules of {arm.label}, {rounds} rounds")
        decoder = make_decoder(arm, target, drafters, sampler)
        assert isinstance(decoder, Decoder)
        prompts = contexts[:PROMPTS]
        gains = compare_rules(decoder.target, decoder.drafter, sampler, rules, prompts, rounds, seed)
        found += [_gain_json(arm, gain) for gain in gains]
    return found


def _gain_json(arm: Arm, gain: RuleGain) -> Json:
    return {
        "method": arm.method,
        "gamma": arm.gamma,
        "rule": gain.rule,
        "lossless": RULES[gain.rule].lossless,
        "rounds": gain.rounds,
        "tokens_per_target_forward": gain.tokens.value,
        "tokens_interval": [gain.tokens.low, gain.tokens.high],
        "gain": gain.gain.value,
        "gain_interval": [gain.gain.low, gain.gain.high],
    }
