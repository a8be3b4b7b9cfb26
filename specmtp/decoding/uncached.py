"""Decoding as the reference experiment does it: no cache, a host that takes part in every round.

Every forward encodes the last ``attention_window`` tokens afresh, standing at positions 0, 1, …: plain decoding slides
by one, a verification crops context and drafts together; its hidden rows serve the next MTP draft. Past the window they
are other generators than the sliding window's (``window_rule`` crop), and plain and speculative crop differently:
exactness holds inside the window only.

Shapes: B rows of equal length, L tokens so far, T tokens of a crop, N = G + 1 places, V symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.decoding.accept import Proposal, accept
from specmtp.decoding.loop import Generation, check_budget, cut
from specmtp.decoding.noise import Noise, noise_stream
from specmtp.decoding.round import Round, emit
from specmtp.decoding.sampling import Sampler, sample
from specmtp.decoding.trace import Trace
from specmtp.nn.cache import causal_geometry
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT


@dataclass(frozen=True)
class Text:
    """All tokens so far, and what the last verification left for the MTP modules."""

    ids_BL: Tensor
    hidden_BTD: Tensor | None = None
    """The target's hidden rows up to the token before the pending one; None where none were computed yet."""


class UncachedDecoder:
    """A twin of ``Decoder`` without cache; batches only from one text, and for one round."""

    batch: int | None = None

    def __init__(
        self, net: MultiTokenGPT, method: str, gamma: int, sampler: Sampler | None = None, draft: GPT | None = None
    ) -> None:
        """
        Args:
            net: the target, with its MTP modules.
            method: plain, draft or mtp.
            gamma: drafts a round; 0 for plain.
            sampler: logits to distributions.
            draft: the draft model, for the method of that name.
        """
        self.net, self.target, self.draft = net, net.gpt, draft
        self.method, self._gamma, self.sampler = method, gamma, sampler or Sampler()

    @property
    def gamma(self) -> int:
        return self._gamma

    def with_sampler(self, sampler: Sampler) -> "UncachedDecoder":
        """The same decoder with another sampler."""
        return UncachedDecoder(self.net, self.method, self.gamma, sampler, self.draft)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Text, int]:
        """The state after one prompt; there is nothing to compute ahead.

        Raises:
            ValueError: not exactly one prompt, or an empty one.
        """
        if len(prompts) != 1 or not len(prompts[0]):
            raise ValueError("uncached decoding takes one prompt at a time, of at least one token")
        return Text(torch.tensor([list(prompts[0])], device=self.target.lm_head.weight.device)), 0

    def expand(self, state: Text, batch: int) -> Text:
        """The text of one row, copied to so many."""
        hidden_BTD = state.hidden_BTD
        return Text(state.ids_BL.repeat(batch, 1), None if hidden_BTD is None else hidden_BTD.repeat(batch, 1, 1))

    def play(self, state: Text, noise: Noise, active_B: Tensor) -> tuple[Text, Round]:
        """One round; the returned state goes on from the first row."""
        ids_BL = state.ids_BL
        proposal = self._propose(state, noise.draft_v_BG)
        drafted_BL = torch.cat([ids_BL, proposal.drafts_BG], 1)
        h_BTD = self.target.hidden(self._crop(drafted_BL))
        p_BNV = self.sampler(self.target.logits(h_BTD)[:, -self.gamma - 1 :])
        played = emit(p_BNV, proposal, accept(p_BNV, proposal, noise), active_B)
        count = int(played.count_B[0])
        # rows of the pending token and of accepted drafts stay true; those of rejected drafts do not
        true_rows = h_BTD.shape[1] - self.gamma - 1 + count
        return Text(torch.cat([ids_BL[:1], played.emitted_BN[:1, :count]], 1), h_BTD[:1, :true_rows]), played

    def play_rounds(
        self, state: Text, num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> Trace | None:
        """The trace of whole rounds until there are ``num_tokens`` more tokens or the stop token; None for no tokens.

        Raises:
            ValueError: num_tokens is negative or not a whole number.
        """
        check_budget(num_tokens)
        end, rounds = state.ids_BL.shape[1] + num_tokens, []
        noise = noise_stream(seed, 1, self.gamma, state.ids_BL.device)
        active_B = torch.ones(1, dtype=torch.bool, device=state.ids_BL.device)
        while state.ids_BL.shape[1] < end:
            before = state.ids_BL.shape[1]
            state, played = self.play(state, next(noise), active_B)
            rounds.append(played)
            if stop_token is not None and stop_token in state.ids_BL[0, before:].tolist():
                break
        return Trace.of(rounds) if rounds else None

    def generate(
        self, prompts: Sequence[Sequence[int]], num_tokens: int, seed: int | None = None, stop_token: int | None = None
    ) -> Generation:
        """Exactly ``num_tokens`` new tokens a prompt, one prompt after another; the trace is the last one's."""
        tokens, trace = [], None
        for prompt in prompts:
            trace = self.play_rounds(self.prefill([prompt])[0], num_tokens, seed, stop_token)
            tokens.append(cut(trace.tokens(0), num_tokens, stop_token) if trace else [])
        return Generation(tokens, trace)

    def _crop(self, ids_BL: Tensor) -> Tensor:
        return ids_BL[:, -self.target.config.attention_window :]

    def _propose(self, state: Text, draft_v_BG: Tensor) -> Proposal:
        ids_BL = state.ids_BL
        drafts: list[Tensor] = []
        qs: list[Tensor] = []
        draftable = ids_BL.shape[1] >= 2
        h_BTD = None
        if self.method == "mtp" and draftable:
            h_BTD = self.target.hidden(self._crop(ids_BL)[:, :-1]) if state.hidden_BTD is None else state.hidden_BTD
            h_BTD = h_BTD[:, -self.target.config.attention_window + 1 :]
        for i in range(self.gamma):
            if h_BTD is not None:
                logits_BV, h_BTD = self._mtp(torch.cat([ids_BL, *drafts], 1), h_BTD, i)
            elif self.draft is not None:
                window = self.draft.config.attention_window
                logits_BV = self.draft(torch.cat([ids_BL, *drafts], 1)[:, -window:])[:, -1]
            else:  # MTP with nothing behind the pending token: not counted
                logits_BV = torch.zeros(len(ids_BL), self.target.config.vocab_size, device=ids_BL.device)
            qs.append(self.sampler(logits_BV))
            drafts.append(sample(qs[-1], draft_v_BG[:, i])[:, None])
        shape = (len(ids_BL), self.gamma)
        return Proposal(
            torch.cat(drafts, 1) if drafts else ids_BL.new_empty(shape),
            torch.stack(qs, 1) if qs else draft_v_BG.new_empty(*shape, self.target.config.vocab_size),
            torch.full((len(ids_BL),), self.gamma if draftable else 0, device=ids_BL.device),
        )

    def _mtp(self, ids_BL: Tensor, h_BTD: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Logits of draft i, and the hidden rows for the next one.

        Up to the last depth, rows stay and read embeddings one further on; past it, the last row's own output is
        appended as a hidden row.
        """
        depth = self.net.mtp.depth
        rows = h_BTD.shape[1]
        embedded_BTD = self.target.embed_tokens(ids_BL[:, -rows:])
        out_BTD = self.net.mtp.at(min(i + 1, depth))(
            h_BTD, embedded_BTD, causal_geometry(rows, self.target.config, ids_BL.device)
        )
        logits_BV = self.target.logits(out_BTD[:, -1:])[:, 0]
        return logits_BV, out_BTD if i + 1 < depth else torch.cat([h_BTD, out_BTD[:, -1:]], 1)
