"""MTP modules trained on a frozen target."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_distillation import a_target, train_small
from training_run import text_file

from specmtp.checkpoint import find_newest, load
from specmtp.training.modules import MTPHeadsModule
from specmtp.training.optim import OptimConfig


def heads(tmp_path: Path, name: str, *more: str, **steps: int) -> dict[str, Any]:
    """Trains MTP modules on a small target; what metrics.json says."""
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    target = a_target(tmp_path, symbols)
    return train_small(tmp_path, name, "MTPHeadsModule", ["--model.target", str(target), *more], **steps)


def last(tmp_path: Path, name: str) -> Path:
    return tmp_path / "runs" / name / "checkpoints" / "last.ckpt"


@pytest.mark.parametrize("shape", [["--model.mtp_depth=1"], ["--model.mtp_depth=2", "--model.mtp_shared=true"]])
def test_chained_drafts_are_accepted_more_often_and_the_target_stays_as_it_is(tmp_path: Path, shape: list[str]) -> None:
    short = heads(tmp_path, "short", "--model.num_drafts=2", *shape, steps=2, interval=2)
    record = heads(tmp_path, "heads", "--model.num_drafts=3", *shape, steps=60)
    final = record["final"]
    for k in (1, 2):
        rejected, before = (1 - run[f"val/alpha_exact_mtp{k}"] for run in (final, short["final"]))
        assert rejected < 0.6 * before
    assert final["val/alpha_exact_mtp3"] > 0 and "val/loss_mtp3" in final
    assert final["val/loss_main"] == short["final"]["val/loss_main"]
    trained, target = load(last(tmp_path, "heads")), load(tmp_path / "target" / "checkpoints" / "last.ckpt")
    assert trained.role == "target" and record["parameters"]["mtp"] > 0
    for name, weight in target.net.gpt.state_dict().items():
        assert torch.equal(trained.net.gpt.state_dict()[name], weight), name


def test_a_warm_start_begins_with_the_targets_own_modules(tmp_path: Path) -> None:
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    path = a_target(tmp_path, symbols)
    own = load(path).net.mtp.state_dict()
    for options, same in [({}, True), ({"warm_start": False}, False), ({"mtp_depth": 2}, False)]:
        module = MTPHeadsModule(symbols, OptimConfig(), str(path), **options)  # type: ignore[arg-type]
        found = module.net.mtp.state_dict()
        assert all(torch.equal(found[name], weight) for name, weight in own.items()) == same
        assert module.hparams["warm_start"] == same


def test_what_is_frozen_has_no_dropout(tmp_path: Path) -> None:
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    module = MTPHeadsModule(symbols, OptimConfig(), str(a_target(tmp_path, symbols)), dropout=0.5).train()
    ids_BT = torch.zeros(1, 6, dtype=torch.long)
    (main, draft), (main_again, draft_again) = module.net(ids_BT), module.net(ids_BT)
    assert torch.equal(main, main_again) and not torch.equal(draft, draft_again)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--model.mtp_depth=0"], "mtp_depth must be at least 1"),
        (["--model.mtp_depth=3", "--model.num_drafts=2"], "num_drafts must be at least mtp_depth"),
        (["--model.mtp_shared=true"], "mtp_depth >= 2"),
        (["--model.dropout=1"], "dropout must lie"),
        (["--model.own_text=-1"], "must lie in"),
        (["--model.num_drafts=16"], "num_drafts must be below block_size .*; got 16 and block_size 16"),
        (["--model.num_drafts=64", "--data.block_size=80"], "below 64, the length of validation windows; got 64"),
        (["--model.own_text=0.5", "--data.block_size=1024"], "block_size below 1024"),
        (["--model.target="], "name its checkpoint or run with --model.target"),
        (["--model.attention_dropout=2"], "attention_dropout must lie"),
    ],
)
def test_mistakes(tmp_path: Path, options: list[str], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        heads(tmp_path, "wrong", *options)


def test_modules_that_diverge_are_told_though_the_frozen_model_is_fine(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="training diverged: the validation loss is nan"):
        heads(tmp_path, "far", "--model.optimizer.lr=1e30", steps=4, interval=4)


def test_a_target_may_be_named_by_its_run_and_the_result_is_no_newest_target(tmp_path: Path) -> None:
    symbols = "".join(sorted(set(text_file(tmp_path).read_text())))
    target = a_target(tmp_path / "runs", symbols)
    train_small(tmp_path, "heads", "MTPHeadsModule", ["--model.target", str(tmp_path / "runs" / "target")], 2, 2)
    assert last(tmp_path, "heads").exists() and find_newest(tmp_path / "runs", "target") == target


def test_training_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    options = ("--model.optimizer.schedule=constant", "--ckpt_path", "last")
    heads(tmp_path, "whole", *options, steps=4, interval=2)
    for steps in (2, 4):
        heads(tmp_path, "halves", *options, steps=steps, interval=2)
    whole, halves = (load(last(tmp_path, name)).net.state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(a, b) for a, b in zip(whole.values(), halves.values(), strict=True))


def test_a_target_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target"):
        train_small(tmp_path, "wrong", "MTPHeadsModule", [])
