"""Which models a bench compares: found, and checked against each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmtp.checkpoint import Checkpoint, checkpoint_file, find_newest, load, read_metrics
from specmtp.data.corpus import CORPORA, load_corpus
from specmtp.ledger.arms import METHODS, USUAL_METHODS, Drafters
from specmtp.ledger.rows import Json
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

PROMPTS = {"tinyshakespeare": "ROMEO:\n", "stdlib": "def "}
"""Usual prompts by corpus."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Models:
    """A target, a draft model of the same vocabulary (or none), and the drafters that get rows."""

    target: Checkpoint
    draft: Checkpoint | None
    methods: list[str]
    """Drafters under the names of their kinds: draft, mtp, ngram."""
    control: Path | None = None
    """Folder of a run that differs from the target's by having no MTP loss."""
    named: dict[str, Checkpoint] = field(default_factory=dict)
    """Further drafters, by names of their own."""

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [c for c in (self.target, self.draft, *self.named.values()) if c]

    @property
    def drafters(self) -> Drafters:
        """What every drafter runs, in the order of rows."""
        own = {"draft": self.draft.net.gpt if self.draft else None, "mtp": self.target.net}
        found: dict[str, GPT | MultiTokenGPT | None] = {name: own.get(name) for name in METHODS if name in self.methods}
        return found | {name: c.net.gpt if c.role == "draft" else c.net for name, c in self.named.items()}


def choose_models(
    target: str | None,
    draft: str | None,
    runs: Path,
    asked: Sequence[str] | None,
    say: Say,
    named: Mapping[str, str] | None = None,
) -> Models:
    """The models named, else the newest under ``runs``; both paths are said.

    Args:
        target: checkpoint or run folder, or None.
        draft: checkpoint or run folder, or None.
        runs: folder of runs.
        asked: drafters that must have rows; None takes those there are.
        say: told paths and what is left out.
        named: checkpoints or run folders of further drafters, by their names.

    Raises:
        ValueError: no target, a wrong role, different vocabularies, a drafter asked for that there is not, or MTP
            modules of another target.
    """
    target_file = checkpoint_file(target) if target else find_newest(runs, "target")
    if target_file is None:
        raise ValueError(
            f"no trained target under {runs}/: 'make demo' trains quick ones, or train with python train.py --config "
            "configs/draft.yaml and then configs/main.yaml"
        )
    target_model = _load(target_file, "target")
    say(f"target: {_describe(target_model)}")
    vocabulary = target_model.vocabulary
    draft_file = checkpoint_file(draft) if draft else find_newest(runs, "draft", vocabulary)
    draft_model = _load(draft_file, "draft") if draft_file else None
    if draft_model is not None:
        if draft_model.vocabulary != vocabulary:
            raise ValueError(
                f"target and draft have different vocabularies, {len(vocabulary)} symbols in {target_file} and "
                f"{len(draft_model.vocabulary)} in {draft_file}: train both on the same text"
            )
        say(f"draft:  {_describe(draft_model)}")
    absent = {}
    if draft_model is None:
        absent["draft"] = (
            f"no draft model of this vocabulary under {runs}/: train one (configs/draft.yaml) or give --draft"
        )
    if target_model.net.mtp.depth == 0:
        absent["mtp"] = f"{target_file} was trained without MTP: give a target with mtp_depth of 1 or more"
    for method, reason in absent.items():
        if asked is not None and method in asked:
            raise ValueError(f"--arms {method}: {reason}")
        if asked is None:
            say(f"{method} rows left out: {reason}")
    control = find_control(target_model)
    if control:
        say(f"control: {control}, the same training without MTP")
    further = {name: _drafter_of(target_model, name, path) for name, path in (named or {}).items()}
    for name, checkpoint in further.items():
        say(f"{name}: {_describe(checkpoint)}")
    return Models(target_model, draft_model, [m for m in (asked or USUAL_METHODS) if m not in absent], control, further)


def _drafter_of(target: Checkpoint, name: str, path: str) -> Checkpoint:
    """A further drafter: a draft model of the target's vocabulary, or MTP modules trained on this very target."""
    file = checkpoint_file(path)
    found = load(file)
    if found.vocabulary != target.vocabulary:
        raise ValueError(f"--drafter {name}: {file} and {target.path} have different vocabularies")
    if found.role == "target":
        if found.net.mtp.depth == 0:
            raise ValueError(f"--drafter {name}: {file} is a target without MTP modules, and drafts nothing")
        own, others = (net.gpt.state_dict() for net in (target.net, found.net))
        same_shapes = [(k, w.shape) for k, w in own.items()] == [(k, w.shape) for k, w in others.items()]
        if not same_shapes or not all(torch.equal(own[k], others[k]) for k in own):
            raise ValueError(
                f"--drafter {name}: the MTP modules of {file} belong to another target than {target.path}; train some "
                "on this one with configs/mtp_heads.yaml"
            )
        found.net.gpt = target.net.gpt
    return found


def validation_ids(target: Checkpoint) -> tuple[Tensor | None, str | None]:
    """The validation part [N] of the text a target was trained on; or None and why not."""
    corpus = _corpus(target)
    kept = target.metrics.get("val_fraction")
    if not {"name", "origin", "sha256"} <= set(corpus) or not isinstance(kept, float):
        return None, f"{target.path} has no metrics.json of its run that would name its text"
    origin = Path(str(corpus["origin"]))
    try:
        named = corpus["name"] in CORPORA and not origin.is_file()
        found = load_corpus(corpus["name"], None if named else str(origin), download=False)
    except ValueError as error:
        return None, str(error)
    if found.sha256 != corpus["sha256"]:
        return None, f"{found.origin} is not the text that {target.path} was trained on"
    ids_N = target.vocabulary.encode(found.text)
    return ids_N[int(len(ids_N) * (1 - kept)) :], None


def _corpus(target: Checkpoint) -> Json:
    corpus = target.metrics.get("corpus")
    return corpus if isinstance(corpus, dict) else {}


def usual_prompt(target: Checkpoint) -> str:
    """A prompt that suits the text: its usual one, a newline, or the first symbol."""
    symbols = target.vocabulary.symbols
    choices = [PROMPTS.get(_corpus(target).get("name", ""), "\n"), "\n", symbols[0]]
    return next(prompt for prompt in choices if set(prompt) <= set(symbols))


SAME_TRAINING = ("max_steps", "seed", "val_fraction")
"""What target and control must have in common, beside text and size."""


def find_control(target: Checkpoint) -> Path | None:
    """The newest run beside the target's whose record says: the same training, without MTP."""
    own = target.metrics
    files = target.path.parent.parent.parent.glob("*/metrics.json")
    for file in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True) if own.get("mtp_weight") else []:
        other = read_metrics(file)
        alike = _fingerprint(own) == _fingerprint(other)
        without = other.get("role") == "target" and not (other.get("parameters") or {}).get("mtp")
        if alike and without:
            return file.parent
    return None


def _fingerprint(metrics: Json) -> list[Any]:
    corpus, parameters = metrics.get("corpus") or {}, metrics.get("parameters") or {}
    return [corpus.get("sha256"), parameters.get("gpt"), *(metrics.get(name) for name in SAME_TRAINING)]


def _load(file: Path, role: str) -> Checkpoint:
    checkpoint = load(file)
    if checkpoint.role != role:
        raise ValueError(f"--{role} {file} holds a {checkpoint.role} model, a {role} model is wanted")
    return checkpoint


def _describe(checkpoint: Checkpoint) -> str:
    size = checkpoint.net.num_parameters()
    heads = f" + {size['mtp']:,} in {checkpoint.net.mtp.depth} MTP depth(s)" if size["mtp"] else ""
    return f"{checkpoint.path}, step {checkpoint.step}, {size['gpt']:,} parameters{heads}"
