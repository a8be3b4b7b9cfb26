"""What a user can get wrong: one sentence that names the thing, exit code 2, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import SMALL, SMALL_DRAFT
from test_checkpoint import save
from training_run import text_file

import bench
import train
from specmtp.checkpoint import load
from specmtp.data.vocabulary import Vocabulary
from specmtp.errors import one_line_errors
from specmtp.nn.mtp import MultiTokenGPT

ROOT = Path(__file__).parent.parent
TINY = {
    "model.net.num_layers": 1, "model.net.d_model": 16, "model.net.num_heads": 2, "model.net.num_kv_heads": 1,
    "trainer.accelerator": "cpu", "data.batch_size": 4, "trainer.max_steps": 4, "trainer.val_check_interval": 2,
}  # fmt: skip


def train_args(folder: Path, config: str = "quick_draft", **changes: object) -> list[str]:
    options = {**TINY, "data.path": text_file(folder), "runs_dir": folder / "runs", **changes}
    return ["--config", str(ROOT / "configs" / f"{config}.yaml"), *(f"--{k}={v}" for k, v in options.items())]


def fails(capsys: pytest.CaptureFixture, main, args: list[str]) -> str:  # type: ignore[no-untyped-def]
    """The one line on stderr of a call that must end with exit code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop, one_line_errors(train.MisconfigurationException):
        main(args)
    assert stop.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    "changes, wanted",
    [
        ({"model.optimiser.lr": 1}, ("optimiser.lr", "model.optimizer.lr")),
        ({"data.bloc_size": 8}, ("data.bloc_size", "data.block_size")),
        ({"trainer.max_step": 8}, ("trainer.max_step", "trainer.max_steps")),
        ({"lamda": 0.3}, ("lamda",)),
        ({"data.block_size": "four"}, ("data.block_size", "four")),
        ({"model.net.dropout": 1.5}, ("dropout", "1.5")),
        ({"model.net.num_heads": 3}, ("num_heads", "16 and 3")),
        ({"model.optimizer.lr": -1}, ("lr", "-1")),
        ({"data.path": "nowhere.txt"}, ("nowhere.txt",)),
        ({"data.block_size": 10**6}, ("need at least 1000001",)),
        ({"data.batch_size": 0}, ("data.batch_size", "got 0")),
        ({"trainer.max_steps": 0}, ("trainer.max_steps", "got 0")),
        ({"ckpt_path": "nowhere.ckpt"}, ("nowhere.ckpt",)),
        ({"ckpt_path": "pretrained/main/checkpoints/last.ckpt"}, ("pretrained", "weights alone")),
        ({"run_name": "../up"}, ("run_name", "../up")),
    ],
)
def test_training_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture, changes: dict, wanted: tuple) -> None:
    line = fails(capsys, train.main, train_args(tmp_path, **changes))
    assert all(part in line for part in wanted), line
    assert not list(tmp_path.glob("runs/*/checkpoints/*")), "nothing may be trained"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_asked_for_and_absent(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "cuda" in fails(capsys, train.main, train_args(tmp_path, **{"trainer.accelerator": "cuda"})).lower()
    assert "--device cuda" in fails(capsys, bench.main, ["--device", "cuda"])


@pytest.mark.parametrize("config, changes", [("main", {"model.mtp_weight": -1}), ("main", {"model.mtp_weight": 0})])
def test_mtp_weight(tmp_path: Path, capsys: pytest.CaptureFixture, config: str, changes: dict) -> None:
    assert "mtp_weight" in fails(capsys, train.main, train_args(tmp_path, config, **changes))


def test_unknown_keys_in_files(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("model:\n  init_args:\n    net:\n      depht: 4\n")
    assert "depht" in fails(capsys, train.main, [*train_args(tmp_path), "--config", str(overlay)])
    overlay.write_text("trainer:\n  max_steps: 3\n  max_steps: 4\n")
    line = fails(capsys, train.main, [*train_args(tmp_path), "--config", str(overlay)])
    assert "'max_steps' stands twice" in line and "line 3" in line
    overlay.write_text("trainer: [1,\n")
    assert "overlay.yaml is not readable as YAML" in fails(capsys, train.main, [f"--config={overlay}"])
    assert "none.yaml" in fails(capsys, train.main, ["--config", str(tmp_path / "none.yaml")])
    fails(capsys, train.main, [])


def test_truncated_checkpoint_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = save(tmp_path / "cut.ckpt", MultiTokenGPT(SMALL))
    file.write_bytes(file.read_bytes()[:500])
    assert "cut.ckpt" in fails(capsys, train.main, train_args(tmp_path, ckpt_path=file))


def test_a_second_run_leaves_the_first_alone(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path)) == 0
    first = tmp_path / "runs" / "quick_draft"
    before = {f: f.read_bytes() for f in first.rglob("*") if f.is_file()}
    assert train.main(train_args(tmp_path)) == 0
    assert {f: f.read_bytes() for f in before} == before
    assert load(tmp_path / "runs" / "quick_draft-2" / "checkpoints" / "last.ckpt").step == 4
    # 'last' is the newest of the name; finished, it is not trained again; with more steps it goes on in place
    assert train.main(train_args(tmp_path, ckpt_path="last")) == 0
    assert load(tmp_path / "runs" / "quick_draft-2" / "checkpoints" / "last.ckpt").step == 4
    assert train.main(train_args(tmp_path, ckpt_path="last", **{"trainer.max_steps": 6})) == 0
    assert load(tmp_path / "runs" / "quick_draft-2" / "checkpoints" / "last.ckpt").step == 6
    curve = json.loads((tmp_path / "runs" / "quick_draft-2" / "metrics.json").read_text())["curve"]
    assert [p["step"] for p in curve] == [2, 4, 6]
    assert not (tmp_path / "runs" / "quick_draft-3").exists()


def test_resume_refuses_another_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert train.main(train_args(tmp_path)) == 0
    folder = tmp_path / "runs" / "quick_draft"
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    other = tmp_path / "other.txt"
    other.write_text((tmp_path / "text.txt").read_text()[::-1])
    for changes, wanted in (
        ({"model.net.d_model": 32}, ("net.d_model 16", "32")),
        ({"model.optimizer.lr": 0.5}, ("optimizer.lr", "0.5")),
        ({"data.block_size": 32}, ("data.block_size", "32")),
        ({"data.path": other}, ("data.text_sha256",)),
        ({"seed_everything": 5}, ("seed", "5")),
    ):
        line = fails(capsys, train.main, train_args(tmp_path, ckpt_path="last", **{"trainer.max_steps": 6, **changes}))
        assert all(part in line for part in wanted) and "--run_name" in line, line
    args = train_args(tmp_path, "quick_main", run_name="quick_draft", ckpt_path="last")
    fails(capsys, train.main, args)
    assert {f: f.read_bytes() for f in before} == before


def test_neighbouring_names_are_other_runs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("exp-3layers", "exp-old", "exp(1)"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
    assert train.main(train_args(tmp_path, run_name="exp")) == 0
    assert train.main(train_args(tmp_path, run_name="exp[1]")) == 0
    assert train.main(train_args(tmp_path, run_name="exp[1]")) == 0
    found = {f.parent.parent.name for f in tmp_path.glob("runs/*/checkpoints/last.ckpt")}
    assert found == {"exp", "exp[1]", "exp[1]-2"}
    for bad in ("exp-2", "..", ".", "a/b", ""):
        assert "run_name" in fails(capsys, train.main, train_args(tmp_path, run_name=bad))


def test_from_another_checkpoint_a_run_goes_on_in_a_new_folder(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path)) == 0
    first = tmp_path / "runs" / "quick_draft" / "checkpoints"
    before = {f: f.read_bytes() for f in first.parent.rglob("*") if f.is_file()}
    more = {"trainer.max_steps": 6}
    assert train.main(train_args(tmp_path, ckpt_path=first / "best.ckpt", run_name="tuned", **more)) == 0
    assert train.main(train_args(tmp_path, ckpt_path=first / "best.ckpt", **more)) == 0
    assert {f: f.read_bytes() for f in before} == before
    for name in ("tuned", "quick_draft-2"):
        for file in ("best.ckpt", "last.ckpt"):
            assert load(tmp_path / "runs" / name / "checkpoints" / file).step in (4, 6)


def test_a_moved_run_keeps_its_best(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path, **{"trainer.max_steps": 8})) == 0
    runs = tmp_path / "moved runs ü"
    (tmp_path / "runs").rename(runs)
    checkpoints = runs / "quick_draft" / "checkpoints"
    state = torch.load(checkpoints / "last.ckpt", weights_only=True)
    for callback in state["callbacks"].values():  # as if the best had been unreachably good
        if callback.get("monitor") == "val/objective":
            callback["best_model_score"] = callback["kth_value"] = torch.tensor(0.0)
            callback["best_k_models"] = {k: torch.tensor(0.0) for k in callback["best_k_models"]}
    torch.save(state, checkpoints / "last.ckpt")
    best = (checkpoints / "best.ckpt").read_bytes()
    assert train.main(train_args(tmp_path, runs_dir=runs, ckpt_path="last", **{"trainer.max_steps": 10})) == 0
    assert (checkpoints / "best.ckpt").read_bytes() == best
    assert load(checkpoints / "last.ckpt").step == 10


def test_divergence_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    line = fails(capsys, train.main, train_args(tmp_path, **{"model.optimizer.lr": 1e30}))
    assert "diverged" in line and "model.optimizer.lr" in line


@pytest.mark.parametrize(
    "changes, wanted",
    [
        ({"trainer.val_check_interval": 0}, "trainer.val_check_interval"),
        ({"trainer.log_every_n_steps": 0}, "trainer.log_every_n_steps"),
        ({"trainer.accumulate_grad_batches": 0}, "trainer.accumulate_grad_batches"),
        ({"trainer.accumulate_grad_batches": 3}, "multiple of accumulate_grad_batches"),
        ({"trainer.max_steps": 10**20}, "trainer.max_steps"),
        ({"trainer.devices": -1}, "trainer"),
        ({"trainer.fast_dev_run": "true"}, "fast_dev_run"),
        ({"trainer.logger": "true"}, "trainer.logger"),
        ({"trainer.max_epochs": 0}, "stopped at step 0 of 4"),
        ({"trainer.limit_train_batches": 0}, "stopped at step 0 of 4"),
        ({"seed_everything": -1}, "seed"),
        ({"model.net.rope_base": 0}, "rope_base"),
        ({"runs_dir": ""}, "runs_dir"),
    ],
)
def test_trainer_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture, changes: dict, wanted: str) -> None:
    assert wanted in fails(capsys, train.main, train_args(tmp_path, **changes))


def test_no_progress_bar_if_unwanted(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path, **{"trainer.enable_progress_bar": "false"})) == 0


def test_a_short_run_is_validated_at_its_end(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path, **{"trainer.val_check_interval": 500})) == 0
    metrics = json.loads((tmp_path / "runs" / "quick_draft" / "metrics.json").read_text())
    assert [p["step"] for p in metrics["curve"]] == [4]


def test_steps_past_the_last_validation_are_saved(tmp_path: Path) -> None:
    assert train.main(train_args(tmp_path, **{"trainer.max_steps": 5})) == 0
    assert load(tmp_path / "runs" / "quick_draft" / "checkpoints" / "last.ckpt").step == 5


CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda f: f.stem)
def test_shipped_configs_parse(config: Path, capsys: pytest.CaptureFixture) -> None:
    laid_over = {"reference": "main", "large": "main", "lambda_depth": "main", "distill": "draft"}
    base = [ROOT / "configs" / f"{laid_over[config.stem]}.yaml"] if config.stem in laid_over else []
    with pytest.raises(SystemExit) as stop:
        train.main([*(f"--config={file}" for file in (*base, config)), "--print_config"])
    assert stop.value.code == 0
    assert "class_path: specmtp.training.modules" in capsys.readouterr().out


def started(folder: Path, *more: str) -> subprocess.Popen:
    """A long training in a process of its own, past its first steps."""
    args = train_args(folder, **{"trainer.max_steps": 100_000, "trainer.val_check_interval": 1000})
    process = subprocess.Popen(
        [sys.executable, "train.py", *args, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.time() + 120
    while time.time() < deadline and process.poll() is None:
        if list(folder.glob("runs/*/checkpoints")) or list(folder.glob("runs/*/events*")):
            time.sleep(3)
            return process
        time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_training_can_go_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    file = tmp_path / "runs" / "quick_draft" / "checkpoints" / "last.ckpt"
    step = load(file).step
    assert step > 0 and str(file) in out + err
    assert train.main(train_args(tmp_path, ckpt_path="last", **{"trainer.max_steps": step + 2})) == 0
    assert load(file).step == step + 2


@pytest.fixture
def models(tmp_path: Path) -> Path:
    save(tmp_path / "runs" / "main" / "checkpoints" / "last.ckpt", MultiTokenGPT(SMALL, 1))
    save(tmp_path / "runs" / "draft" / "checkpoints" / "last.ckpt", MultiTokenGPT(SMALL_DRAFT), "draft")
    save(tmp_path / "control.ckpt", MultiTokenGPT(SMALL))
    save(tmp_path / "foreign.ckpt", MultiTokenGPT(SMALL_DRAFT), "draft", Vocabulary("ABCDEFGHIJKLM"))
    (tmp_path / "empty.ckpt").touch()
    return tmp_path


@pytest.mark.parametrize(
    "args, wanted",
    [
        (["--prompt", "abz1"], ("'z'", "U+007A", "offset 2")),
        (["--target", "{}/none.ckpt"], ("none.ckpt",)),
        (["--target", "{}/empty.ckpt"], ("empty.ckpt",)),
        (["--draft", "{}/foreign.ckpt"], ("different vocabularies",)),
        (["--draft", "{}/runs/main"], ("holds a target",)),
        (["--target", "{}/runs/draft"], ("holds a draft",)),
        (["--target", "{}/control.ckpt", "--arms", "mtp"], ("--arms mtp", "without MTP")),
        (["--arms", "medusa"], ("medusa",)),
        (["--backends", "cuda"], ("--backends", "eager, compile", "cuda")),
        (["--batches", "0"], ("--batches", "got 0")),
        (["--gammas", "1,0"], ("--gammas", "got 0")),
        (["--gammas", "four"], ("gammas", "four")),
        (["--gama", "4"], ("gama", "gammas")),
        (["--temperature", "-1"], ("temperature", "-1")),
        (["--temperature", "nan"], ("temperature", "nan")),
        (["--temperature", "hot"], ("temperature", "hot")),
        (["--top-p", "0"], ("top_p",)),
        (["--tokens", "-3"], ("--tokens", "-3")),
        (["--tokens", "1.5"], ("tokens", "1.5")),
        (["--repeats", "0"], ("--repeats", "got 0")),
        (["--repeats", "often"], ("repeats", "often")),
        (["--seconds", "nan"], ("--seconds", "nan")),
        (["--prompts", "0"], ("--prompts", "got 0")),
        (["--output", "{}"], ("is a folder",)),
        (["--output", os.devnull], ("is a device",)),
        (["--output", "report.html"], ("ledger.json is wanted",)),
        (["--output", "/proc/nowhere/ledger.json"], ("cannot be written",)),
        (["--threads", "100000"], ("--threads 100000", "cores")),
        (["--seed", "-1"], ("--seed", "-1")),
        (["--gammas", ""], ("gammas", "nothing")),
        (["--target", "{}/runs"], ("holds no checkpoint",)),
        (["--output", "{}/control.ckpt/ledger.json"], ("cannot be written",)),
    ],
)
def test_bench_mistakes(models: Path, capsys: pytest.CaptureFixture, args: list[str], wanted: tuple) -> None:
    line = fails(capsys, bench.main, ["--runs-dir", str(models / "runs"), *(a.format(models) for a in args)])
    assert all(part in line for part in wanted), line


def test_bench_without_runs_says_which_command_makes_them(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "make demo" in fails(capsys, bench.main, ["--runs-dir", str(tmp_path)])


def test_entry_points_have_no_traceback_unless_asked(tmp_path: Path) -> None:
    for script in ("train.py", "bench.py"):
        command = [sys.executable, script, "--nonsense", "3"]
        plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        asked = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "SPECMTP_TRACEBACK": "1"}
        )
        assert (plain.returncode, plain.stderr.count("\n")) == (2, 1), plain.stderr
        assert "nonsense" in plain.stderr and "Traceback" not in plain.stderr
        assert "Traceback" in asked.stderr


def test_our_own_faults_keep_their_traceback() -> None:
    with pytest.raises(AssertionError), one_line_errors():
        raise AssertionError("ours")
    with pytest.raises(SystemExit) as stop, one_line_errors():
        raise KeyboardInterrupt
    assert stop.value.code == 130
