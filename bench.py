"""Check, time and compare all ways of decoding: python bench.py"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jsonargparse import ArgumentError, ArgumentParser
from rich.console import Console

from specmtp.decoding.sampling import Sampler
from specmtp.errors import one_line_errors
from specmtp.ledger.build import Settings, build_ledger
from specmtp.ledger.files import write_json
from specmtp.ledger.models import METHODS, choose_models, usual_prompt
from specmtp.ledger.table import MIN_WIDTH, show_sample, show_table
from specmtp.usage import plain_sentence

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class BenchOptions:
    """What to measure, and how."""

    target: str | None = None
    """Checkpoint of the target, or its run's folder; the newest under runs_dir if not given."""
    draft: str | None = None
    """Checkpoint of the draft model, or its run's folder; the newest of the same vocabulary if not given."""
    runs_dir: str = "runs"
    """Folder in which the newest are looked for."""
    arms: list[str] | None = None
    """Drafters beside plain, of draft and mtp; those there are if not given."""
    gammas: list[int] | None = None
    """Drafts a round, for every drafter; each drafter's own list if not given."""
    tokens: int = 600
    """Tokens a generation."""
    prompt: str | None = None
    """Prompt; an empty one means a newline. One that suits the text if not given."""
    temperature: float = 1.0
    """Temperature; 0 is greedy."""
    top_k: int | None = None
    """Keep the k most probable symbols."""
    top_p: float | None = None
    """Keep the most probable symbols up to this probability."""
    repeats: int = 7
    """Timed generations an arm."""
    seed: int = 0
    """Repeat r uses seed + r, for every arm."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to run; auto takes CUDA where there is a GPU, else the CPU."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Of weights and caches; probabilities are always fp32."""
    threads: int = 1
    """CPU threads; one is fastest for small models at batch 1."""
    output: str = "ledger.json"
    """File of the ledger; an older one is replaced when the new one is whole."""

    def __post_init__(self) -> None:
        for name in ("tokens", "repeats", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        for gamma in self.gammas or []:
            if gamma < 1:
                raise ValueError(f"--gammas must be whole numbers from 1, got {gamma}")
        for arm in self.arms or []:
            if arm not in METHODS:
                raise ValueError(f"--arms knows {' and '.join(METHODS)}, got {arm!r} (plain is always there)")
        for name, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())):
            if self.device == name and not there:
                raise ValueError(f"--device {name}: torch finds no such device here; leave the option out for the CPU")
        if Path(self.output).is_dir():
            raise ValueError(f"--output {self.output} is a folder, a file name is wanted")

    @property
    def torch_device(self) -> torch.device:
        best = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(best if self.device == "auto" else self.device)


def parse(args: list[str] | None) -> BenchOptions:
    """The options of a command line."""
    parser = ArgumentParser(prog="bench.py", description=__doc__, exit_on_error=False, allow_abbrev=False)
    parser.add_class_arguments(BenchOptions)
    try:
        return BenchOptions(**parser.parse_args(args).as_dict())
    except ArgumentError as error:
        raise ValueError(plain_sentence(str(error), BenchOptions.__dataclass_fields__)) from error


def show(console: Console, ledger: dict[str, Any], options: BenchOptions) -> None:
    """Table, coloured sample and verdict."""
    where = ledger["provenance"]
    title = (
        f"{where['device_name']} ({where['device']}), {options.dtype}, {options.threads} thread(s), eager, batch 1\n"
        f"{options.tokens} tokens after {where['prompt']!r}, temperature {options.temperature:g}, "
        f"medians of {options.repeats} repeats, 95 % intervals"
    )
    show_table(console, ledger["rows"], title)
    show_sample(console, ledger["sample"]["text"], ledger["sample"]["marks"], ledger["sample"]["row"])
    console.print(ledger["verdict"], style="bold", highlight=False)


def main(args: list[str] | None = None) -> int:
    """Runs the bench; 0 if everything that was checked held, 1 if not."""
    options = parse(args)
    sampler = Sampler(options.temperature, options.top_k, options.top_p)
    console, notes = Console(), Console(stderr=True, highlight=False, soft_wrap=True)
    console.width = max(console.width, MIN_WIDTH)
    models = choose_models(options.target, options.draft, Path(options.runs_dir), options.arms, notes.print)
    device = options.torch_device
    if options.device == "auto" and device.type == "cpu":
        notes.print("device: cpu (torch finds no CUDA device)")
    prompt = usual_prompt(models.target) if options.prompt is None else options.prompt or "\n"
    settings = Settings(
        prompt, options.tokens, options.repeats, options.seed, sampler, options.gammas, device,
        DTYPES[options.dtype], options.threads,
    )  # fmt: skip
    with notes.status("loading") as line:
        ledger = build_ledger(models, settings, notes.print, line.update)
    write_json(Path(options.output), ledger)
    show(console, ledger, options)
    print(json.dumps({"ledger": options.output, "headline": ledger["verdict"]}, ensure_ascii=False))
    return 0 if ledger["checks"]["passed"] else 1


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
