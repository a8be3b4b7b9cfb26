"""alpha_exact in the ledger: of the validation text and of the target's own, as sampled and against temperature."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from specmtp.analysis.exact_acceptance import Agreement, agreement, paired_logits
from specmtp.data.windows import VALIDATION_BLOCK, validation_windows
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.models import Models
from specmtp.ledger.rows import ByMethod, Json
from specmtp.nn.gpt import GPT

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
BATCH = 128
OWN_ROWS, OWN_TOKENS = 64, 129
"""The target's own text: so many samples of two windows each."""


@torch.inference_mode()
def own_texts(plain: AnyDecoder, symbols: str) -> list[list[int]]:
    """Samples of the target's own, each begun by a newline (the first symbol where there is none)."""
    first = max(symbols.find("\n"), 0)
    return plain.generate([[first]] * OWN_ROWS, OWN_TOKENS, seed=0).tokens


def exact_acceptance(models: Models, sampler: Sampler, texts: Sequence[list[int]]) -> ByMethod:
    """First-draft agreement over all positions of texts, by drafter: once as sampled, once a temperature."""
    samplers = {sampler, *(replace(sampler, temperature=t) for t in TEMPERATURES)}
    target = models.target.net
    windows_BW = torch.cat([validation_windows(torch.tensor(text), VALIDATION_BLOCK) for text in texts])
    found: dict[str, dict[Sampler, Agreement]] = {}
    for batch_BW in windows_BW.to(target.gpt.lm_head.weight.device).split(BATCH):
        for method, net in models.drafters.items():
            if net is None:
                continue
            heads, draft = (target, net) if isinstance(net, GPT) else (net, None)
            pair = paired_logits(heads, draft, batch_BW)["draft" if draft else "mtp"]
            sums = found.setdefault(method, dict.fromkeys(samplers, Agreement()))
            for each in samplers:
                sums[each] += agreement(pair, each)
    return found


def temperature_json(sampler: Sampler, by_text: Mapping[str, ByMethod]) -> list[Json]:
    """alpha_exact against temperature, one entry a drafter; a text that is not at hand is None."""
    methods = {method for found in by_text.values() for method in found}
    samplers = [replace(sampler, temperature=t) for t in TEMPERATURES]
    return [
        {
            "method": method,
            "temperature": list(TEMPERATURES),
            **{
                text: [found[method][s].alpha_exact for s in samplers] if method in found else None
                for text, found in by_text.items()
            },
        }
        for method in sorted(methods)
    ]
