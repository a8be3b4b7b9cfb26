"""Decode in validation and log acceptance: how many drafts would be kept if training stopped here."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor, nn

from callbacks.decoding_mode import decoding_mode
from callbacks.ladder import show_page
from specmtp.analysis.exact_acceptance import Agreement, agreement, paired_logits
from specmtp.analysis.ladder import RUNGS
from specmtp.checkpoint import checkpoint_file, find_newest, load
from specmtp.data.seeding import mix
from specmtp.data.vocabulary import Vocabulary
from specmtp.data.windows import PAD, VALIDATION_BLOCK, validation_windows
from specmtp.decoding.drafters import Drafter, DraftModel
from specmtp.decoding.loop import Decoder
from specmtp.decoding.metrics import Acceptance
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.ngram import NGramDrafter
from specmtp.decoding.rules import RULES, TOKEN
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.trace import ACCEPTED, RESAMPLED, Counts, Trace
from specmtp.nn.gpt import GPT

PROMPT_TOKENS = 16
LADDER_WINDOWS = 256
"""Windows of the validation text, evenly spaced: alpha_exact ± 0.002."""


class DecodingCallback(Callback, ABC):
    """Decodes a fixed number of rounds from prompts of the validation text at the end of a validation.

    Prompts and noise come from generators of its own, so training cannot notice it; the number of rounds is fixed, so
    that processes stay in step. Each process decodes its own prompts, and counts are pooled.
    """

    def __init__(
        self,
        gammas: list[int],
        num_prompts: int = 64,
        num_rounds: int = 32,
        temperature: float = 1.0,
        seed: int = 0,
        rule: str = TOKEN,
    ) -> None:
        """
        Args:
            gammas: drafts a round; one set of tags each.
            num_prompts: prompts a process, decoded as one batch.
            num_rounds: rounds a prompt.
            temperature: of sampling; 0 is greedy.
            seed: what prompts and noise are drawn from.
            rule: accept rule; the tags name any other than token.
        """
        counts = {"num_prompts": num_prompts, "num_rounds": num_rounds}
        for name, value in [*counts.items(), *(("gammas", gamma) for gamma in gammas)]:
            if value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {value}")
        if not gammas:
            raise ValueError(f"{type(self).__name__}: gammas must name at least one, got an empty list")
        if seed < 0:
            raise ValueError(f"{type(self).__name__}: seed must not be negative, got {seed}")
        if rule not in RULES:
            raise ValueError(f"{type(self).__name__}: rule must be one of {', '.join(RULES)}, got {rule!r}")
        self.rule = rule
        self.gammas, self.num_prompts, self.num_rounds = sorted(set(gammas)), num_prompts, num_rounds
        self.sampler, self.seed = Sampler(temperature), seed
        self.folder: str | None = None

    @abstractmethod
    def drafter(self, trainer: Trainer, module: Any, gamma: int) -> Drafter | None:
        """The drafter of this callback, or None where there is none to decode with."""

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        self.folder = trainer.log_dir  # asked of all processes: Lightning broadcasts it
        if "fsdp" in type(trainer.strategy).__name__.lower():
            raise ValueError(
                f"{type(self).__name__} decodes with the whole model and cannot under FSDP: take it out of "
                "trainer.callbacks"
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        show_page(trainer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        for gamma in self.gammas:
            drafter = self.drafter(trainer, pl_module, gamma)
            if drafter is not None:
                self.log_trace(trainer, pl_module, drafter, self._decode(trainer, pl_module, drafter))

    def log_trace(self, trainer: Trainer, pl_module: Any, drafter: Drafter, trace: Trace) -> None:
        """Logs the rates of a trace, pooled over processes, one set of tags a drafter and gamma; once the ladder."""
        metric = Acceptance(drafter.gamma).to(pl_module.device)
        metric.update(trace)
        counts = metric.counts()
        counts.check()
        values: dict[str, float | None] = {
            "acceptance_rate": counts.acceptance_rate,
            "accepted_per_drafted": counts.accepted_per_drafted,
            "tokens_per_target_forward": counts.tokens_per_target_forward,
            "alpha_minpq": counts.alpha_minpq,
            **{f"acceptance_at/{i}": rate for i, rate in enumerate(counts.acceptance_at) if drafter.gamma > 1},
        }
        arm = f"{drafter.name}_g{drafter.gamma}" + (f"_{self.rule}" if self.rule != TOKEN else "")
        logged = {f"decode/{arm}/{name}": v for name, v in values.items() if v is not None}
        logged |= {f"counts/{arm}/{name}": float(getattr(counts, name)) for name in ("rounds", "examined", "accepted")}
        pl_module.log_dict(logged, rank_zero_only=True)
        first = drafter.gamma == self.gammas[0] and self.rule == TOKEN
        if first and isinstance(drafter, DraftModel | MTPDrafter):
            self._log_ladder(trainer, pl_module, drafter, trace, counts)

    def _log_ladder(self, trainer: Trainer, module: Any, drafter: Drafter, trace: Trace, counts: Counts) -> None:
        """The rungs between a drafter that looks good and fewer target forwards, all at one step, lowest first."""
        prompts = self._prompts(trainer)
        on_validation = self._agreement(trainer, module, drafter, self._validation_windows(trainer), first=1)
        on_own = self._agreement(trainer, module, drafter, own_windows(prompts, trace), first=len(prompts[0]))
        values = (
            on_validation.top1_agreement,
            on_validation.alpha_exact,
            on_own.alpha_exact,
            counts.acceptance_rate,
            counts.tokens_per_target_forward,
        )
        rungs = dict(zip(RUNGS, values, strict=True))
        logged = {f"ladder/{drafter.name}/{name}": v for name, v in rungs.items() if v is not None}
        module.log_dict(logged, rank_zero_only=True)

    def _agreement(self, trainer: Trainer, module: Any, drafter: Drafter, windows_BW: Tensor, first: int) -> Agreement:
        """Teacher-forced agreement of target and drafter, summed over processes."""
        draft = drafter.net if isinstance(drafter, DraftModel) else None
        with decoding_mode(trainer, *_nets(module, drafter)):
            pair = paired_logits(module.net, draft, windows_BW.to(module.device), first)[drafter.name]
            found = agreement(pair, self.sampler)
        sums = torch.tensor([found.beta_sum, found.same_best, found.positions], device=module.device)
        beta_sum, same_best, positions = trainer.strategy.reduce(sums, reduce_op="sum").tolist()
        return Agreement(beta_sum, int(same_best), int(positions))

    def _validation_windows(self, trainer: Trainer) -> Tensor:
        """This process's share of windows spread evenly over the validation text, [B, W]."""
        windows_BW = validation_windows(trainer.datamodule.parts[1], VALIDATION_BLOCK)  # type: ignore[attr-defined]
        spread_BW = windows_BW[:: -(-len(windows_BW) // LADDER_WINDOWS)]
        return spread_BW[trainer.global_rank :: trainer.world_size]

    def _decode(self, trainer: Trainer, module: Any, drafter: Drafter) -> Trace:
        with decoding_mode(trainer, *_nets(module, drafter)):
            decoder = Decoder(module.net.gpt, drafter, self.sampler, RULES[self.rule].accept)
            state, _ = decoder.prefill(self._prompts(trainer))
            return decoder.run_rounds(state, self.num_rounds, mix(self.seed, trainer.global_rank, drafter.gamma))

    def _prompts(self, trainer: Trainer) -> list[list[int]]:
        """Pieces of the validation text; the same at every validation, others in every process."""
        val_N: Tensor = trainer.datamodule.parts[1]  # type: ignore[attr-defined]
        generator = torch.Generator().manual_seed(mix(self.seed, trainer.global_rank))
        size = min(PROMPT_TOKENS, len(val_N))
        starts = torch.randint(len(val_N) - size + 1, (self.num_prompts,), generator=generator)
        return [val_N[s : s + size].tolist() for s in starts.tolist()]


class SpeculativeAcceptance(DecodingCallback):
    """Decodes with the small draft model; without one it says so once and stays quiet."""

    def __init__(
        self,
        gammas: list[int] | None = None,
        draft: str | None = None,
        num_prompts: int = 64,
        num_rounds: int = 32,
        temperature: float = 1.0,
        seed: int = 0,
        rule: str = TOKEN,
    ) -> None:
        """
        Args:
            gammas: drafts a round; one set of tags each.
            draft: checkpoint or run of the draft model; none takes the newest of the same vocabulary beside this run.
            num_prompts: prompts a process, decoded as one batch.
            num_rounds: rounds a prompt.
            temperature: of sampling; 0 is greedy.
            seed: what prompts and noise are drawn from.
            rule: accept rule; the tags name any other than token.
        """
        super().__init__([1, 4] if gammas is None else gammas, num_prompts, num_rounds, temperature, seed, rule)
        self.draft = draft
        self._net: GPT | None = None

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        vocabulary: Vocabulary = pl_module.vocabulary
        runs = Path(self.folder or trainer.default_root_dir).parent
        path = self.draft or find_newest(runs, "draft", vocabulary)
        if path is None:
            rank_zero_info(
                f"SpeculativeAcceptance: no draft checkpoint of this vocabulary under {runs}: no draft curves; "
                "train one first (configs/draft.yaml)"
            )
            return
        checkpoint = load(checkpoint_file(path))
        if checkpoint.role != "draft":
            raise ValueError(f"SpeculativeAcceptance: {path} holds a {checkpoint.role}, a draft is wanted")
        if checkpoint.vocabulary != vocabulary:
            raise ValueError(f"SpeculativeAcceptance: {path} was trained on another vocabulary than this text's")
        rank_zero_info(f"SpeculativeAcceptance: draft {path}, step {checkpoint.step}")
        self._net = checkpoint.net.gpt

    def drafter(self, trainer: Trainer, module: Any, gamma: int) -> Drafter | None:
        return DraftModel(self._net.to(module.device), gamma) if self._net is not None else None


class MTPAcceptance(DecodingCallback):
    """Decodes with the MTP modules in training; a model without them has no curves."""

    def __init__(
        self,
        gammas: list[int] | None = None,
        num_prompts: int = 64,
        num_rounds: int = 32,
        temperature: float = 1.0,
        seed: int = 0,
        rule: str = TOKEN,
    ) -> None:
        """
        Args:
            gammas: drafts a round; one set of tags each.
            num_prompts: prompts a process, decoded as one batch.
            num_rounds: rounds a prompt.
            temperature: of sampling; 0 is greedy.
            seed: what prompts and noise are drawn from.
            rule: accept rule; the tags name any other than token.
        """
        super().__init__([1, 2] if gammas is None else gammas, num_prompts, num_rounds, temperature, seed, rule)

    def drafter(self, trainer: Trainer, module: Any, gamma: int) -> Drafter | None:
        return MTPDrafter(module.net, gamma) if module.net.mtp.depth else None


class NGramAcceptance(MTPAcceptance):
    """Decodes with prompt lookup, which is trained by nothing: what every trained drafter must beat."""

    def drafter(self, trainer: Trainer, module: Any, gamma: int) -> Drafter | None:
        return NGramDrafter(module.net.gpt.config.vocab_size, gamma)


class SampleTrace(MTPAcceptance):
    """Writes a sample with one mark a token to TensorBoard and into the run's folder, in place of rates."""

    def __init__(self, gamma: int = 1, num_rounds: int = 120, temperature: float = 1.0, seed: int = 0) -> None:
        """
        Args:
            gamma: drafts a round.
            num_rounds: rounds, each of 1 to gamma + 1 tokens.
            temperature: of sampling; 0 is greedy.
            seed: what prompt and noise are drawn from.
        """
        super().__init__([gamma], 1, num_rounds, temperature, seed)

    def log_trace(self, trainer: Trainer, pl_module: Any, drafter: Drafter, trace: Trace) -> None:
        if not trainer.is_global_zero:
            return
        text = pl_module.vocabulary.decode(trace.tokens(0))
        page = marked_text(text, trace.marks(0))
        if isinstance(trainer.logger, TensorBoardLogger):
            fenced = "```\n" + page + "\n```"
            trainer.logger.experiment.add_text(f"sample/{drafter.name}_g{drafter.gamma}", fenced, trainer.global_step)
        if self.folder:
            folder = Path(self.folder) / "samples"
            os.makedirs(folder, exist_ok=True)
            (folder / f"step_{trainer.global_step:06d}.txt").write_text(page + "\n", encoding="utf-8")


def _nets(module: Any, drafter: Drafter) -> list[nn.Module]:
    return [module.net, drafter.net] if isinstance(drafter, DraftModel) else [module.net]


def own_windows(prompts: list[list[int]], trace: Trace) -> Tensor:
    """Prompts and what was emitted after them, one window a row, filled up with PAD: [B, W]."""
    rows = [torch.tensor([*prompt, *trace.tokens(i)]) for i, prompt in enumerate(prompts)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def marked_text(text: str, marks: list[str], width: int = 80) -> str:
    """A text in lines of at most ``width``, each with a line of marks below it.

    >>> print(marked_text("to be", ["sampled", "accepted", "resampled", "accepted", "sampled"]).splitlines()[-1])
    .^x^.
    """
    sign = {ACCEPTED: "^", RESAMPLED: "x"}
    lines = ["^ accepted draft   x resampled after a rejection   . drawn by the target   ⏎ newline"]
    row: list[tuple[str, str]] = []
    for symbol, mark in zip(text, marks, strict=True):
        row.append(("⏎" if symbol == "\n" else symbol, sign.get(mark, ".")))
        if symbol == "\n" or len(row) == width:
            lines += ["".join(column) for column in zip(*row, strict=True)]
            row = []
    if row:
        lines += ["".join(column) for column in zip(*row, strict=True)]
    return "\n".join(lines)
