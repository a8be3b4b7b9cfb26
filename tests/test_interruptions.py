"""Runs killed at random moments end where the uninterrupted run ends; a full disk costs nothing that was kept."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning import Callback, Trainer
from test_cli import ROOT, train_args
from training_run import fit

from callbacks.keep_last import RunCheckpoint
from specmtp.training.checkpoint_io import AtomicCheckpointIO

SETTINGS = {"trainer.val_check_interval": 20, "trainer.enable_progress_bar": False}
STEPS_A_KILL = 60
ENDS = {0, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT}
"""Exit codes: done; killed; stopped and resumable; met by a signal on the way out, all work done."""


def run(folder: Path, steps: int, kill: signal.Signals | None = None, after: float = 0.0) -> int:
    """One process of the training; with ``kill``, a signal so many seconds after its first words. Its exit code."""
    options = {**SETTINGS, "trainer.max_steps": steps, "run_name": "short", "ckpt_path": "last"}
    command = [sys.executable, "train.py", *train_args(folder, "quick_main", **options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    if kill:
        next((line for line in process.stderr if line.startswith("target:")), None)
        time.sleep(after)
        process.send_signal(kill)
    _, words = process.communicate(timeout=300)
    assert "Traceback" not in words, words
    return process.returncode


def final_weights(folder: Path, steps: int) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(folder / "runs" / "short" / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == steps
    return checkpoint["state_dict"]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_runs_end_with_the_same_weights(tmp_path: Path, kills: int) -> None:
    """SIGKILL, SIGTERM and SIGINT in turn, each at a random moment, then one run to the end."""
    steps = STEPS_A_KILL * kills
    assert run(tmp_path / "whole", steps) == 0
    chance, codes = random.Random(0), []
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    for i in range(kills):
        codes.append(run(tmp_path / "killed", steps, signals[i % 3], chance.uniform(0.0, 2.0)))
    assert set(codes) <= ENDS and {-signal.SIGKILL, 128 + signal.SIGTERM} <= set(codes)
    assert run(tmp_path / "killed", steps) == 0
    whole, killed = final_weights(tmp_path / "whole", steps), final_weights(tmp_path / "killed", steps)
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert [f.name for f in (tmp_path / "killed" / "runs").iterdir()] == ["short"]


class FullDisk(Callback):
    """From a step on no file may grow past a few bytes, as on a full disk."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *rest: object) -> None:
        if trainer.global_step == self.step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    last = RunCheckpoint(tmp_path / "ck", "last", save_on_train_epoch_end=False, enable_version_counter=False)
    try:
        with pytest.raises(ValueError, match=r"last\.ckpt could not be written \(.+\)"):
            fit(tmp_path, [FullDisk(7), last], enable_checkpointing=True, logger=False, plugins=[AtomicCheckpointIO()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [f.name for f in (tmp_path / "ck").iterdir()] == ["last.ckpt"]
    assert torch.load(tmp_path / "ck" / "last.ckpt", weights_only=True)["global_step"] == 5


@pytest.mark.parametrize("script", ["train.py", "bench.py"])
def test_ctrl_c_while_libraries_are_imported_is_quiet(script: str) -> None:
    command = [sys.executable, "-X", "importtime", script, "--help"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    next(line for line in process.stderr if "torch" in line)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT and "Traceback" not in words
