"""Exactness checks of the ledger as plain data."""

from dataclasses import asdict

from specmtp.analysis.bigram_check import BigramCheck
from specmtp.analysis.exactness import GreedyCheck
from specmtp.analysis.joint_check import JointCheck
from specmtp.analysis.sampling_check import SamplingCheck
from specmtp.analysis.twin_check import TwinCheck
from specmtp.ledger.arms import Arm
from specmtp.ledger.rows import Json


def greedy_json(arm: Arm, check: GreedyCheck) -> Json:
    """A greedy check as plain data."""
    return _check_json(
        arm,
        check,
        {
            "prompts": check.prompts,
            "tokens": check.tokens,
            "identical": check.identical,
            "first_divergence": None if check.first_divergence is None else asdict(check.first_divergence),
            "tie_gap": check.tie_gap,
        },
    )


def sampling_json(arm: Arm, check: SamplingCheck, symbols: str, context: str, most: int = 12) -> Json:
    """A sampling check as plain data, with the symbols of highest p."""
    order = sorted(range(len(check.p)), key=lambda i: -check.p[i])[:most]
    kept = {k: v for k, v in asdict(check).items() if k not in ("p", "q", "frequency")}
    top = [
        {"symbol": symbols[i], "p": check.p[i], "q": check.q[i] if check.q else None, "frequency": check.frequency[i]}
        for i in order
    ]
    return _check_json(arm, check, kept) | {"context": context, "top": top}


def joint_json(arm: Arm, check: JointCheck, context: str) -> Json:
    """A check of pairs as plain data."""
    fields = {k: v for k, v in asdict(check).items() if k not in ("context", "draws")}
    return _check_json(arm, check, {"context": context, "n": check.draws, **fields})


def bigram_json(arm: Arm, check: BigramCheck) -> Json:
    """A bigram check as plain data."""
    return _check_json(arm, check, asdict(check))


def twin_json(arm: Arm, check: TwinCheck) -> Json:
    """A check of a graph's drafts as plain data."""
    return _check_json(arm, check, {k: v for k, v in asdict(check).items() if k != "cuts"})


Check = GreedyCheck | SamplingCheck | JointCheck | BigramCheck | TwinCheck


def _check_json(arm: Arm, check: Check, fields: Json) -> Json:
    found = {"method": arm.method, "gamma": arm.gamma, "backend": arm.backend, "rule": arm.rule}
    return {**found, **fields, "passed": check.passed}
