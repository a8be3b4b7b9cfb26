"""Which folder a run writes into, and whether it may go on from a checkpoint."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from specmtp.checkpoint import load
from specmtp.data.datamodule import TextDataModule
from specmtp.training.base import LanguageModule


def find_run(runs: Path, name: str, ckpt_path: str | None) -> tuple[Path, Path | None]:
    """The folder of this run, and the checkpoint to continue from (None begins anew).

    A run goes on in its own folder only from its own last checkpoint; from any other it goes on in a new folder.

    Raises:
        ValueError: the checkpoint does not exist or is damaged, or the name is no plain one.
    """
    if not name or Path(name).name != name or name.startswith(".") or re.search(r"-\d+$", name):
        raise ValueError(f"run_name must be a plain folder name that does not end in a number like -2, got {name!r}")
    folders = runs.iterdir() if runs.is_dir() else []
    numbers = {f: re.fullmatch(re.escape(name) + r"(?:-(\d+))?", f.name) for f in folders}
    own = sorted((int(m[1] or 1), f) for f, m in numbers.items() if m)
    lasts = [f / "checkpoints" / "last.ckpt" for _, f in own if (f / "checkpoints" / "last.ckpt").exists()]
    fresh = runs / name
    if own:
        number, newest = own[-1]
        fresh = runs / f"{name}-{number + 1}" if (newest / "checkpoints").exists() else newest
    if ckpt_path is None or (ckpt_path == "last" and not lasts):
        return fresh, None
    file = lasts[-1] if ckpt_path == "last" else Path(ckpt_path)
    load(file)  # missing, damaged or foreign: told here in one sentence
    in_place = any(file.resolve() == last.resolve() for last in lasts)
    return (file.parent.parent if in_place else fresh), file


def check_same_training(file: Path, model: LanguageModule, data: TextDataModule) -> int:
    """The step a checkpoint stands at; refuses to go on with another model, text or optimiser than it began with.

    Raises:
        ValueError: a setting differs, and both values are named; or there is nothing but weights.
    """
    saved = torch.load(file, map_location="cpu", weights_only=True)
    if not {"hyper_parameters", "optimizer_states", "loops"} <= set(saved):
        raise ValueError(f"{file} holds weights alone: a training goes on from the checkpoint of a run")
    before = {**saved["hyper_parameters"], **saved["specmtp"], "data": saved.get("data")}
    now = {**model.hparams, **model.description, "data": before["data"] and data.settings}
    for name, (old, new) in flat_differences(before, now).items():
        raise ValueError(
            f"{file} was trained with {name} {old!r}, and this configuration says {new!r}: continue with the run's own "
            "config.yaml, or begin a run of another --run_name without --ckpt_path"
        )
    return int(saved["global_step"])


def flat_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """(value in a, value in b) of every setting that differs, nested names joined by dots."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*a, *b}):
        x, y = a.get(name), b.get(name)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            found |= {f"{name}.{inner}": pair for inner, pair in flat_differences(x, y).items()}
        elif x != y:
            found[name] = (x, y)
    return found
