"""Checkpoints without a Trainer: a ``.ckpt`` file to a bare network with its vocabulary and role, weights only.

A training checkpoint carries an entry ``specmtp`` of plain data (role, vocabulary, shape) beside Lightning's own; what
is read here is that entry and the weights, never a pickled object.
"""

import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from specmtp.data.corpus import file_sha256
from specmtp.data.vocabulary import Vocabulary
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MultiTokenGPT

Role = Literal["target", "draft"]
HEADS_OF = "heads_of"
"""In a checkpoint's description: the hash of the target whose MTP modules alone were trained."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained network, ready to decode: in eval mode, on the CPU, without gradients."""

    path: Path
    role: Role
    vocabulary: Vocabulary
    net: MultiTokenGPT
    step: int
    sha256: str
    notes: tuple[str, ...] = ()
    """What was left out in loading, one sentence each."""

    @property
    def metrics(self) -> dict[str, Any]:
        """What the run's metrics.json beside the checkpoints says; empty where there is none or it is damaged."""
        return read_metrics(self.path.parent.parent / "metrics.json")


def read_metrics(file: Path) -> dict[str, Any]:
    """What a run's metrics.json says; empty where there is none or it is damaged."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def pack(net: MultiTokenGPT, role: Role, vocabulary: Vocabulary) -> dict[str, Any]:
    """The plain data a checkpoint needs to be opened without its training run."""
    return {
        "role": role,
        "vocabulary": vocabulary.symbols,
        "net": asdict(net.gpt.config),
        "mtp_depth": net.mtp.depth,
        "mtp_shared": net.mtp.shared,
    }


def load(path: str | Path, with_mtp: bool = True) -> Checkpoint:
    """The network in a checkpoint file.

    Args:
        path: a ``.ckpt`` file written by a training run.
        with_mtp: False opens the main model alone; what was dropped stands in ``notes``.

    Raises:
        ValueError: missing, unreadable, unsafe or foreign file, or a key that is wanted and absent.
    """
    path = Path(path)
    raw = _read(path)
    try:
        return _open(path, raw, _entry(raw, path), with_mtp)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: its description is not what a training run writes ({error})") from error
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path} is damaged: {error}") from error


def _open(path: Path, raw: dict[str, Any], entry: dict[str, Any], with_mtp: bool) -> Checkpoint:
    config, vocabulary = GPTConfig(**entry["net"]), Vocabulary(entry["vocabulary"])
    if config.vocab_size != len(vocabulary):
        raise ValueError(f"{path} is damaged: {len(vocabulary)} symbols for a network of {config.vocab_size}")
    weights = {k.removeprefix("net."): v for k, v in raw["state_dict"].items() if k.startswith("net.")}
    depth, notes = entry["mtp_depth"], []
    if not with_mtp and depth:
        dropped = [k for k in weights if k.startswith("mtp.")]
        weights = {k: v for k, v in weights.items() if k not in dropped}
        notes.append(f"{path}: opened without its MTP modules, dropped {', '.join(dropped)}")
        depth = 0
    net = MultiTokenGPT(config, depth, entry["mtp_shared"] and depth > 0)
    wanted, found = set(net.state_dict()), set(weights)
    if missing := sorted(wanted - found):
        raise ValueError(f"{path} lacks the weights {', '.join(missing)}")
    if foreign := sorted(found - wanted):
        raise ValueError(f"{path} has weights that its own description does not name: {', '.join(foreign)}")
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit its own description: {str(error).splitlines()[-1].strip()}") from error
    if broken := [name for name, value in net.state_dict().items() if not value.isfinite().all()]:
        raise ValueError(f"{path} holds weights that are not finite ({broken[0]}): its training had diverged")
    net.eval().requires_grad_(False)
    return Checkpoint(path, entry["role"], vocabulary, net, int(raw["global_step"]), file_sha256(path), tuple(notes))


def checkpoint_file(path: str | Path) -> Path:
    """A checkpoint file, given itself or by its run's folder.

    Raises:
        ValueError: the folder has no checkpoint.
    """
    for name in ("best.ckpt", "last.ckpt"):
        if (file := Path(path) / "checkpoints" / name).exists():
            return file
    if Path(path).is_dir():
        raise ValueError(f"{path} holds no checkpoint yet: train it first, or name a .ckpt file")
    return Path(path)


def find_newest(runs: Path, role: Role, vocabulary: Vocabulary | None = None) -> Path | None:
    """The newest checkpoint of a role under a folder of runs, of a vocabulary where one is given; None if none.

    Of a run's files the one with the best validation loss is taken, else its last. Unreadable files are passed over,
    and so are copies of a target whose MTP modules alone were trained.
    """
    candidates = {f.parent: f for name in ("last.ckpt", "best.ckpt") for f in runs.glob(f"*/checkpoints/{name}")}
    for file in sorted(candidates.values(), key=lambda f: f.stat().st_mtime, reverse=True):
        try:
            entry = _entry(_read(file), file)
        except ValueError:
            continue
        if entry["role"] == role and not entry.get(HEADS_OF) and vocabulary in (None, Vocabulary(entry["vocabulary"])):
            return file
    return None


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"checkpoint {path} does not exist")
    if path.is_dir():
        raise ValueError(f"checkpoint {path} is a folder, a .ckpt file is wanted")
    try:
        raw = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is refused: no checkpoint of plain weights, but damaged or holding objects that could run code"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read as a checkpoint: empty, truncated or damaged") from error
    return raw


def _entry(raw: Any, path: Path) -> dict[str, Any]:
    entry = raw.get("specmtp") if isinstance(raw, dict) else None
    wanted = {"role", "vocabulary", "net", "mtp_depth", "mtp_shared"}
    if not isinstance(entry, dict) or not wanted <= set(entry) or "state_dict" not in raw:
        raise ValueError(f"{path} is not a specmtp checkpoint")
    if entry["role"] not in get_args(Role) or not isinstance(entry["vocabulary"], str):
        raise ValueError(
            f"{path} is damaged: role {entry['role']!r}, vocabulary of {type(entry['vocabulary']).__name__}"
        )
    return entry
