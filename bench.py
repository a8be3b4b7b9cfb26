"""Check, time and compare all ways of decoding: python bench.py"""

import signal

if __name__ == "__main__":  # Ctrl-C while torch is imported, for seconds, ends without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.progress import Progress

from specmtp.decoding.rules import RULES
from specmtp.decoding.sampling import Sampler
from specmtp.errors import one_line_errors
from specmtp.ledger.arms import BACKENDS, METHODS, PLAIN, TOKEN, UNCACHED
from specmtp.ledger.build import build_ledger, build_plan, num_steps
from specmtp.ledger.cells import and_others, baselines_text
from specmtp.ledger.files import check_writable, write_json, write_text
from specmtp.ledger.models import choose_models, usual_prompt
from specmtp.ledger.setup import MOST_PROMPTS, Settings
from specmtp.ledger.table import show_plan, show_profile, show_sample, show_table
from specmtp.pretrained import verified
from specmtp.report.page import page_file, page_html
from specmtp.report.plots import draw_plots
from specmtp.usage import plain_sentence

GREEDY = "greedy"
"""Among --arms: twins at temperature 0; ``UNCACHED`` are twins that decode as the reference experiment does."""
DRAWS, FEWER_DRAWS = 200_000, 50_000
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class BenchOptions:
    """What to measure, and how; see ``make_parser`` for the meaning of each."""

    target: str | None
    draft: str | None
    runs_dir: str
    pretrained: bool
    arms: list[str] | None
    drafter: list[tuple[str, str]]
    rules: list[str]
    backends: list[str]
    batches: list[int]
    gammas: list[int] | None
    graph_gammas: list[int] | None
    tokens: int
    prompt: str | None
    prompts: int
    temperature: float
    top_k: int | None
    top_p: float | None
    repeats: int | None
    seconds: float
    draws: int | None
    seed: int
    device: str
    dtype: str
    threads: int
    profile: bool
    plan: bool
    output: str

    def __post_init__(self) -> None:
        for name in ("tokens", "prompts", "repeats", "seconds", "draws", "threads"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        if self.prompts > MOST_PROMPTS:
            raise ValueError(f"--prompts must be at most {MOST_PROMPTS}, got {self.prompts}")
        if self.threads > (os.cpu_count() or 1):
            raise ValueError(f"--threads {self.threads}: this machine has {os.cpu_count()} cores")
        if self.pretrained and (self.target or self.draft):
            raise ValueError("--pretrained brings its own target and draft: leave --target and --draft out")
        if self.plan and self.rules != [TOKEN]:
            raise ValueError("--plan is about the usual accept rule: leave --rules out")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}")
        for backend in self.backends:
            if backend not in BACKENDS:
                raise ValueError(f"--backends knows {', '.join(BACKENDS)}, got {backend!r}")
        for name in ("gammas", "graph_gammas", "batches"):
            for value in getattr(self, name) or []:
                if value < 1:
                    raise ValueError(f"--{name.replace('_', '-')} must be whole numbers from 1, got {value}")
        for arm in self.arms or []:
            if arm not in (*METHODS, UNCACHED, GREEDY):
                raise ValueError(f"--arms knows {', '.join((*METHODS, UNCACHED, GREEDY))} beside plain, got {arm!r}")
        for rule in self.rules:
            if rule not in RULES:
                raise ValueError(f"--rules knows {', '.join(RULES)}, got {rule!r}")
        names = [name for name, _ in self.drafter]
        for name in names:
            if name in (PLAIN, *METHODS, UNCACHED, GREEDY, "target") or names.count(name) > 1:
                raise ValueError(f"--drafter {name}=…: that name is taken, give it one of its own")
        if "cudagraph" in self.backends and self.torch_device.type != "cuda":
            raise ValueError("--backends cudagraph needs a CUDA device, and this bench runs on the CPU: take compile")
        for name, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())):
            if self.device == name and not there:
                raise ValueError(f"--device {name}: torch finds no such device here; leave the option out for the CPU")
        if Path(self.output).suffix == ".html":
            raise ValueError(
                f"--output {self.output} is what its page would be called: a name such as ledger.json is wanted"
            )
        for file in (Path(self.output), page_file(Path(self.output))):
            check_writable(file)

    @property
    def torch_device(self) -> torch.device:
        best = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(best if self.device == "auto" else self.device)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are ValueErrors."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(plain_sentence(message, BenchOptions.__dataclass_fields__))


def make_parser() -> argparse.ArgumentParser:
    """The options, their defaults and what they mean."""
    parser = OneLineParser("bench.py", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--target", help="checkpoint of the target, or its run's folder (default: the newest under --runs-dir)")
    add("--draft", help="checkpoint of the draft, or its run's folder (default: the newest of the same vocabulary)")
    add("--runs-dir", "--runs_dir", default="runs", help="where the newest are looked for (default: runs)")
    add("--pretrained", action="store_true", help="the weights that come with the project, their hashes checked")
    add(
        "--arms",
        type=words,
        help="draft,mtp,ngram beside plain (default: draft and mtp as far as they are there); uncached adds twins "
        "without cache, greedy twins at temperature 0",
    )
    add(
        "--drafter",
        type=name_and_path,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a further drafter under a name of its own: a draft model's checkpoint, or MTP modules trained on this "
        "target; may be given several times",
    )
    add(
        "--rules",
        type=words,
        default=[TOKEN],
        help=f"accept rules of further rows beside the usual one: {','.join(RULES)} (default: {TOKEN})",
    )
    add(
        "--backends", type=words, default=["eager"], help="eager,compile,cudagraph: how rounds are run (default: eager)"
    )
    add("--batches", type=numbers, default=[1], help="rows decoded at once: 1,4,16 (default: 1)")
    add("--gammas", type=numbers, help="drafts a round, for every drafter: 1,2,4 (default: each drafter's own list)")
    add("--graph-gammas", type=numbers, help="of rows that are compiled, each takes a while to compile (default: all)")
    add("--tokens", type=int, default=600, help="tokens a generation (default: 600)")
    add("--prompt", help="an empty one means a newline (default: one that suits the text)")
    add("--prompts", type=int, default=3, help="that one and pieces of the validation text (default: 3 in all)")
    add("--temperature", type=float, default=1.0, help="0 is greedy (default: 1)")
    add("--top-k", type=int, help="keep the k most probable symbols (default: all)")
    add("--top-p", type=float, help="keep the most probable symbols up to this probability (default: all)")
    add(
        "--repeats",
        type=number_or_auto,
        default=4,
        help="timed generations an arm and prompt (default: 4); auto: until every speed-up is known within ± 3 %%",
    )
    add("--seconds", type=float, default=300, help="that --repeats auto may time at most (default: 300)")
    add(
        "--draws",
        type=int,
        help=f"rounds of the sampling check at γ 1, a tenth for other arms; tokens of the bigram check "
        f"(default: {DRAWS:,}; --pretrained, {FEWER_DRAWS:,})",
    )
    add("--seed", type=int, default=0, help="repeat r uses seed + r, for every arm (default: 0)")
    add("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="auto: CUDA if there is a GPU, or CPU")
    add("--dtype", choices=tuple(DTYPES), default="fp32", help="of weights and caches; probabilities are always fp32")
    add("--threads", type=int, default=1, help="CPU threads while the clock runs (default: 1, the fastest at batch 1)")
    add("--profile", action="store_true", help="measure the parts of compiled rounds, v(n) and the roofline too")
    add("--plan", action="store_true", help="a short calibration only: which gamma pays for which drafter; no ledger")
    add("--output", default="ledger.json", help="an older ledger there is replaced when the new one is whole")
    return parser


def number_or_auto(text: str) -> int | None:
    """A whole number, or None for auto."""
    try:
        return None if text == "auto" else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"a whole number or auto is wanted, got {text!r}") from error


def name_and_path(text: str) -> tuple[str, str]:
    """NAME=PATH as a pair."""
    name, _, path = text.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or not path:
        raise argparse.ArgumentTypeError(f"NAME=PATH is wanted, the name of a-z, 0-9 and _, got {text!r}")
    return name, path


def words(text: str) -> list[str]:
    """The words of a comma-separated list, at least one."""
    found = text.replace(",", " ").split()
    if not found:
        raise argparse.ArgumentTypeError("a list separated by commas is wanted, got nothing")
    return found


def numbers(text: str) -> list[int]:
    """The whole numbers of a comma-separated list."""
    try:
        return [int(word) for word in words(text)]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"a list of whole numbers such as 1,2,4 is wanted, got {text!r}") from error


def show(console: Console, ledger: dict[str, Any], options: BenchOptions) -> None:
    """Table, coloured sample and verdict."""
    where = ledger["provenance"]
    title = (
        f"{where['device_name']} ({where['device']}), {options.dtype}, {options.threads} thread(s)\n"
        f"{options.tokens} tokens after {where['prompt']!r}{and_others(len(where['prompts']) - 1)}, temperature "
        f"{options.temperature:g}, medians of {where['repeats']} repeats a prompt, 95 % intervals\n"
        f"measured speed-up: over {baselines_text(ledger['rows'])}"
    )
    show_table(console, ledger["rows"], title)
    if ledger["profile"]:
        show_profile(console, ledger["profile"], ledger["rows"])
    show_plan(console, ledger["planner"])
    show_sample(console, where["prompt"], ledger["sample"])
    console.print(ledger["verdict"], style="bold", highlight=False)


def main(args: list[str] | None = None) -> int:
    """Runs the bench; 0 if everything that was checked held, 1 if not."""
    options = BenchOptions(**vars(make_parser().parse_args(args)))
    sampler = Sampler(options.temperature, options.top_k, options.top_p)
    console, notes = Console(), Console(stderr=True, highlight=False, soft_wrap=True)
    twins = {twin for twin in (UNCACHED, GREEDY) if twin in (options.arms or [])}
    asked = [arm for arm in options.arms or [] if arm not in twins] or None
    runs = Path(os.path.relpath(verified())) if options.pretrained else Path(options.runs_dir)
    models = choose_models(options.target, options.draft, runs, asked, notes.print, dict(options.drafter))
    device = options.torch_device
    if options.device == "auto" and device.type == "cpu":
        notes.print("device: cpu (torch finds no CUDA device)")
    backends = list(dict.fromkeys(options.backends))
    if "compile" in backends and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        notes.print("compile rows left out: there is no C++ compiler (g++, or the one CXX names)")
        backends = [backend for backend in backends if backend != "compile"] or ["eager"]
    prompt = usual_prompt(models.target) if options.prompt is None else options.prompt or "\n"
    settings = Settings(
        prompt=prompt,
        sampler=sampler,
        device=device,
        dtype=DTYPES[options.dtype],
        backends=backends,
        batches=sorted(set(options.batches)),
        uncached=UNCACHED in twins,
        greedy=GREEDY in twins and not sampler.greedy,
        tokens=options.tokens,
        prompts=options.prompts,
        repeats=options.repeats,
        seconds=options.seconds,
        draws=options.draws or (FEWER_DRAWS if options.pretrained else DRAWS),
        seed=options.seed,
        gammas=options.gammas,
        graph_gammas=options.graph_gammas,
        threads=options.threads,
        profile=options.profile,
        rules=list(dict.fromkeys([TOKEN, *options.rules])),
    )
    phases: set[str] = set()

    def progress(what: str) -> None:
        bar.update(task, advance=1, description=what)
        phase = what.split()[0]
        if not notes.is_terminal and phase not in phases:  # a log gets one line a phase, its first step
            notes.print(f"{what} …")
            phases.add(phase)

    with Progress(*Progress.get_default_columns(), console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task("loading", total=num_steps(models, settings))
        if options.plan:
            planner = build_plan(models, settings, notes.print, progress)
        else:
            ledger = build_ledger(models, settings, notes.print, progress)
    if options.plan:
        show_plan(console, planner)
        print(json.dumps({"plan": planner}, ensure_ascii=False))
        return 0
    show(console, ledger, options)
    write_json(Path(options.output), ledger)
    draw_plots(ledger, Path(options.output).with_suffix(""))
    page = page_file(Path(options.output))
    write_text(page, page_html(ledger))
    notes.print(f"the whole experiment as a page: {page}")
    print(json.dumps({"ledger": options.output, "page": str(page), "headline": ledger["verdict"]}, ensure_ascii=False))
    return 0 if ledger["checks"]["passed"] else 1


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
