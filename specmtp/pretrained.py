"""The reference weights that come with the project: python -m specmtp.pretrained runs/reference_main … writes them.

A folder of runs like any other, of weights only: NAME/metrics.json, NAME/checkpoints/last.ckpt, and SHA256SUMS (as
sha256sum writes it), which every file is held against before it is opened.
"""

import json
from pathlib import Path
from typing import Any

import torch

from specmtp.checkpoint import load, read_metrics
from specmtp.data.corpus import file_sha256
from specmtp.usage import command_line

FOLDER = Path(__file__).parent.parent / "pretrained"
SUMS = "SHA256SUMS"


def verified(folder: Path = FOLDER) -> Path:
    """The folder itself, once every file in it has the hash that SHA256SUMS says.

    Raises:
        ValueError: the folder or a file is missing, or a file differs from what was published.
    """
    sums = folder / SUMS
    if not sums.is_file():
        raise ValueError(f"there are no pretrained weights at {folder}: they come with a clone of the project")
    for line in sums.read_text("utf-8").splitlines():
        sha256, name = line.split(maxsplit=1)
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{file} is missing: restore it with git checkout, or clone anew")
        if file_sha256(file) != sha256:
            raise ValueError(f"{file} is damaged, its SHA-256 is not the one in {SUMS}: restore it with git checkout")
    return folder


def published_metrics(run: Path) -> dict[str, Any]:
    """A run's record without paths of this machine.

    Raises:
        ValueError: there is no metrics.json, or it is not what a run writes.
    """
    metrics = read_metrics(run / "metrics.json")
    if not metrics:
        raise ValueError(f"{run} has no metrics.json: name the folder of a trained run")
    wanted = {"corpus": dict, "final": dict, "step": int}
    wrong = [name for name, kind in wanted.items() if not isinstance(metrics.get(name), kind)]
    if wrong or "name" not in metrics["corpus"]:
        raise ValueError(f"{run}/metrics.json is not what a run writes: look at its {', '.join(wrong or ['corpus'])}")
    return {**metrics, "corpus": {**metrics["corpus"], "origin": metrics["corpus"]["name"]}}


def publish(target: str, draft: str, control: str | None = None, folder: str = "pretrained") -> None:
    """Writes the weights after the last step of runs, and the record of a control run, into a folder.

    Args:
        target: folder of the target's run.
        draft: folder of the draft's run.
        control: folder of the run without MTP; its record alone is kept.
        folder: where they go.

    Raises:
        ValueError: a run has no checkpoint or no metrics.json.
    """
    for name, run, with_weights in (("main", target, True), ("draft", draft, True), ("control", control, False)):
        if run is None:
            continue
        to = Path(folder) / name
        metrics = published_metrics(Path(run))
        to.mkdir(parents=True, exist_ok=True)
        (to / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
        if with_weights:
            (to / "checkpoints").mkdir(exist_ok=True)
            file = Path(run) / "checkpoints" / "last.ckpt"
            load(file)  # whole and of plain weights, or told here
            raw = torch.load(file, map_location="cpu", weights_only=True)
            kept = {key: raw[key] for key in ("specmtp", "global_step", "state_dict")}
            torch.save(kept, to / "checkpoints" / "last.ckpt")
    files = sorted(f for f in Path(folder).rglob("*") if f.is_file() and f.name != SUMS)
    lines = [f"{file_sha256(f)}  {f.relative_to(folder).as_posix()}" for f in files]
    (Path(folder) / SUMS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    command_line(publish)
