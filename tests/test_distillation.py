"""The draft model distilled from a frozen target."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import sharpened
from test_checkpoint import save
from training_run import text_file

import train
from specmtp.checkpoint import load
from specmtp.data.vocabulary import Vocabulary
from specmtp.data.windows import PAD
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MultiTokenGPT
from specmtp.training.losses import distillation_losses, mean
from specmtp.training.teacher import Teacher

SHAPE = GPTConfig(num_layers=1, d_model=16, num_heads=2, num_kv_heads=1, attention_window=16, dropout=0.0)


def a_target(folder: Path, symbols: str, depth: int = 1) -> Path:
    torch.manual_seed(0)
    config = GPTConfig(**{**SHAPE.__dict__, "vocab_size": len(symbols), "num_layers": 2})
    net = sharpened(MultiTokenGPT(config, depth))
    return save(folder / "target" / "checkpoints" / "last.ckpt", net, "target", Vocabulary(symbols))  # type: ignore[arg-type]


def test_losses_are_those_of_a_table() -> None:
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), torch.tensor([[0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])
    ids = torch.tensor([[0, 1, 2, PAD]])
    padded = (torch.cat([x, torch.full((1, 3), 1 / 3)])[None].log() for x in (p, q))
    found = distillation_losses(*padded, ids)
    alpha = 0.2 + 0.3 + 0.1
    kl = sum(a * math.log(a / b) for a, b in zip(p[0].tolist(), q[0].tolist(), strict=True))
    assert {name: int(count) for name, (_, count) in found.items()} == dict.fromkeys(found, 2)
    assert float(mean(found["alpha_exact"])) == pytest.approx((alpha + 1) / 2)
    assert float(mean(found["kl"])) == pytest.approx(kl / 2, abs=1e-6)
    assert float(mean(found["log_alpha"])) == pytest.approx(-math.log(alpha) / 2, abs=1e-6)


def test_a_draft_far_from_its_target_has_a_finite_loss() -> None:
    q = torch.tensor([[[0.0, 200.0]]], requires_grad=True)
    loss = distillation_losses(torch.tensor([[[200.0, 0.0]]]), q, torch.tensor([[0, 1]]))["log_alpha"][0]
    loss.backward()
    assert loss.item() == pytest.approx(200 - math.log(2)) and q.grad is not None and q.grad.isfinite().all()


def test_gradients_reach_the_drafter_and_vanish_where_it_agrees() -> None:
    torch.manual_seed(0)
    p, ids = torch.randn(2, 3, 5), torch.zeros(2, 4, dtype=torch.long)
    for name in ("kl", "log_alpha"):
        q = torch.randn(2, 3, 5, requires_grad=True)
        distillation_losses(p, q, ids)[name][0].backward()
        assert q.grad is not None and q.grad.abs().sum() > 0
    same = p.clone().requires_grad_()
    distillation_losses(p, same, ids)["kl"][0].backward()
    assert same.grad is not None and same.grad.abs().max() < 1e-6


def run(tmp_path: Path, name: str, *more: str, steps: int = 40, interval: int = 20) -> dict[str, Any]:
    """Trains a small draft model through the entry point; what metrics.json says."""
    shape = [f"--model.net.{k}={getattr(SHAPE, k)}" for k in ("num_layers", "d_model", "num_heads", "num_kv_heads")]
    more = *shape, "--model.net.attention_window=16", "--model.net.dropout=0", *more
    return train_small(tmp_path, name, "DraftModule", more, steps, interval)


def train_small(
    tmp_path: Path, name: str, model: str, more: Sequence[str], steps: int = 40, interval: int = 20
) -> dict[str, Any]:
    """A training through the entry point; what metrics.json says."""
    args = [
        "--model", f"specmtp.training.modules.{model}", "--data.path", str(text_file(tmp_path)),
        "--model.optimizer.lr=1e-2", "--model.optimizer.warmup_steps=2", "--data.block_size=16",
        "--data.batch_size=8", f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={interval}",
        "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--runs_dir", str(tmp_path / "runs"),
        "--run_name", name, *more,
    ]  # fmt: skip
    assert train.main(args) == 0
    record: dict[str, Any] = json.loads((tmp_path / "runs" / name / "metrics.json").read_text("utf-8"))
    return record


def test_distillation_raises_acceptance_above_cross_entropys(tmp_path: Path) -> None:
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    target = a_target(tmp_path, symbols)
    final = {}
    for objective in ("cross_entropy", "kl", "log_alpha", "hybrid"):
        record = run(tmp_path, objective, "--model.target", str(target), "--model.objective", objective)
        final[objective] = record["final"]["val/alpha_exact"]
        checkpoint = load(tmp_path / "runs" / objective / "checkpoints" / "last.ckpt")
        assert checkpoint.net.num_parameters()["gpt"] == record["parameters"]["gpt"]  # nothing of the target
    assert min(final["kl"], final["log_alpha"], final["hybrid"]) > final["cross_entropy"] + 0.1


def test_own_text_is_the_targets_and_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmtp.training.teacher.OWN_ROWS", 4)
    monkeypatch.setattr("specmtp.training.teacher.OWN_TOKENS", 64)
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    target = a_target(tmp_path, symbols)
    teacher = Teacher(str(target), Vocabulary(symbols))
    teacher.write(3)
    windows_BW = teacher.own_windows(5, 17, 3, 1)
    assert windows_BW.shape == (5, 17) and torch.equal(windows_BW, teacher.own_windows(5, 17, 3, 1))
    assert not torch.equal(windows_BW, teacher.own_windows(5, 17, 3, 2))
    options = ["--model.target", str(target), "--model.objective", "kl", "--model.own_text", "0.5"]
    options += ["--model.optimizer.schedule", "constant", "--ckpt_path", "last"]
    run(tmp_path, "whole", *options, steps=8, interval=4)
    for steps in (4, 8):
        run(tmp_path, "halves", *options, steps=steps, interval=4)
    whole, halves = (
        load(tmp_path / "runs" / n / "checkpoints" / "last.ckpt").net.state_dict() for n in ("whole", "halves")
    )
    assert all(torch.equal(a, b) for a, b in zip(whole.values(), halves.values(), strict=True))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--model.objective", "kl"], "name its checkpoint"),
        (["--model.own_text", "0.5"], "name its checkpoint"),
        (["--model.target", "{target}", "--model.own_text", "1.5"], "must lie in [0, 1]"),
        (["--model.target", "", "--model.objective", "kl"], "name its checkpoint"),
        (["--model.target", "nowhere.ckpt"], "does not exist"),
        (["--model.target", "{draft}"], "a target is wanted"),
        (["--model.target", "{foreign}"], "another vocabulary"),
        (["--model.objective", "reverse"], "objective"),
    ],
)
def test_mistakes(tmp_path: Path, options: list[str], wanted: str) -> None:
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    shape = GPTConfig(**{**SHAPE.__dict__, "vocab_size": len(symbols)})
    places = {
        "target": a_target(tmp_path, symbols),
        "draft": save(tmp_path / "draft.ckpt", MultiTokenGPT(shape), "draft", Vocabulary(symbols)),
        "foreign": a_target(tmp_path / "foreign", symbols[:-1] + "€"),
    }
    with pytest.raises(ValueError, match=wanted.replace("[", r"\[").replace("]", r"\]")):
        run(tmp_path, "wrong", *(o.format(**places) for o in options))
