"""What accept rules keep of the same drafts: every rule is asked at the same states, with the same noise.

Shapes: K rules, R rounds, B rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmtp.analysis.statistics import Interval, mean_interval
from specmtp.decoding.accept import AcceptRule, Proposal, Verdict
from specmtp.decoding.drafters import Drafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.rules import RULES, TOKEN
from specmtp.decoding.sampling import Sampler
from specmtp.nn.gpt import GPT


@dataclass(frozen=True)
class RuleGain:
    """Tokens a round under a rule, and how many more than token by token."""

    rule: str
    rounds: int
    tokens: Interval
    gain: Interval
    """Paired, round by round; a block bootstrap."""


class Compared:
    """An accept rule that asks several and notes what each would keep.

    A row goes on as one lossless rule says, rows by turns, so that states are those that these rules come to.
    """

    def __init__(self, rules: Mapping[str, AcceptRule], followed: Sequence[str]) -> None:
        """
        Args:
            rules: by name.
            followed: names of those that rows follow.
        """
        self._rules, self._followed = rules, [list(rules).index(name) for name in followed]
        self.accepted_RKB: list[Tensor] = []

    def __call__(self, p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
        verdicts = [rule(p_BNV, proposal, noise) for rule in self._rules.values()]
        self.accepted_RKB.append(torch.stack([verdict.num_accepted_B for verdict in verdicts]).cpu())
        own_B = torch.tensor(self._followed, device=p_BNV.device)[torch.arange(len(p_BNV)) % len(self._followed)]

        def of_own(name: str) -> Tensor:
            every_KB = torch.stack([getattr(verdict, name) for verdict in verdicts])
            index = own_B.view(1, -1, *[1] * (every_KB.dim() - 2)).expand(1, *every_KB.shape[1:])
            return every_KB.gather(0, index)[0]

        return Verdict(*(of_own(name) for name in Verdict.__dataclass_fields__))


@torch.inference_mode()
def compare_rules(
    target: GPT,
    drafter: Drafter,
    sampler: Sampler,
    rules: Sequence[str],
    prompts: Sequence[list[int]],
    rounds: int,
    seed: int,
) -> list[RuleGain]:
    """Every rule's tokens a round, over rounds from the same states with the same drafts and noise, fresh every round.

    Args:
        target: the model whose law is to be kept.
        drafter: proposes drafts.
        sampler: logits to distributions.
        rules: names of rules, the token-level one among them.
        prompts: a row each.
        rounds: of all rows together, at least.
        seed: of the noise.
    """
    compared = Compared({name: RULES[name].accept for name in rules}, [name for name in rules if RULES[name].lossless])
    decoder = Decoder(target, drafter, sampler, compared)
    state, _ = decoder.prefill(prompts)
    decoder.run_rounds(state, -(-rounds // len(prompts)), seed)
    tokens_KRB = 1 + torch.stack(compared.accepted_RKB, 1).double().numpy()
    usual_RB = tokens_KRB[list(rules).index(TOKEN)]
    return [
        RuleGain(name, usual_RB.size, mean_interval(own_RB), mean_interval(own_RB - usual_RB))
        for name, own_RB in zip(rules, np.asarray(tokens_KRB), strict=True)
    ]
