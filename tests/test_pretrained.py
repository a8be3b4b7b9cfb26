"""The weights that come with the project: whole, exact in every arm, and no cover for a wrong decoder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from wrong_decoders import OffByOne, OtherTemperature, inflated

import bench
from specmtp.analysis.exactness import compare_greedy
from specmtp.analysis.sampling_check import check_sampling
from specmtp.checkpoint import Checkpoint, load
from specmtp.decoding.loop import Decoder
from specmtp.decoding.sampling import Sampler
from specmtp.ledger.arms import Arm, make_decoder
from specmtp.pretrained import FOLDER, SUMS, verified


@pytest.fixture(scope="module")
def trained() -> tuple[Checkpoint, Checkpoint]:
    return tuple(load(verified() / name / "checkpoints" / "last.ckpt") for name in ("main", "draft"))  # type: ignore[return-value]


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "pretrained"
    shutil.copytree(FOLDER, folder)
    assert verified(folder) == folder
    for file in [f for f in folder.rglob("*") if f.is_file() and f.name != SUMS]:
        whole = file.read_bytes()
        middle = len(whole) // 2
        file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        with pytest.raises(ValueError, match=rf"{file.name} is damaged, its SHA-256"):
            verified(folder)
        file.write_bytes(whole)
    (folder / "draft" / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(ValueError, match=r"last\.ckpt is missing"):
        verified(folder)
    with pytest.raises(ValueError, match="come with a clone"):
        verified(tmp_path)


def test_they_name_no_place_of_a_machine_and_weigh_little() -> None:
    files = [f for f in FOLDER.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 5_000_000
    for file in FOLDER.glob("*/metrics.json"):
        assert json.loads(file.read_text("utf-8"))["corpus"]["origin"] == "tinyshakespeare"
    for file in FOLDER.glob("*/checkpoints/last.ckpt"):
        assert set(torch.load(file, weights_only=True)) == {"specmtp", "global_step", "state_dict"}


@pytest.mark.parametrize("arm", [Arm("draft", 1), Arm("draft", 4), Arm("draft", 8), Arm("mtp", 1), Arm("mtp", 3)])
def test_exact_on_trained_weights(trained: tuple[Checkpoint, Checkpoint], arm: Arm) -> None:
    target, draft = trained
    prompts = [target.vocabulary.encode(text).tolist() for text in ("ROMEO:\n", "\n", "To be, or not to be, that is")]
    drafters = {"draft": draft.net.gpt, "mtp": target.net}
    plain = make_decoder(Arm("plain", 0), target.net, drafters, Sampler(0))
    decoder = make_decoder(arm, target.net, drafters, Sampler(0))
    with torch.inference_mode():
        texts = [d.generate(prompts, 200).tokens for d in (plain, decoder)]
        assert compare_greedy(target.net.gpt, prompts, *texts).passed
        check = check_sampling(decoder.with_sampler(Sampler()), prompts[2], 20_000, seed=0, num_checks=5)
    assert check.passed, check


def inflated_ratio(target: Any, drafter: Any, sampler: Any, rule: Any) -> Decoder:
    return Decoder(target, drafter, sampler, inflated)


def off_by_one(target: Any, drafter: Any, sampler: Any, rule: Any) -> Decoder:
    return (OffByOne if drafter.gamma else Decoder)(target, drafter, sampler)


def other_temperature(target: Any, drafter: Any, sampler: Any, rule: Any) -> Decoder:
    return Decoder(target, OtherTemperature(drafter.net, drafter.gamma) if drafter.gamma else drafter, sampler)


@pytest.mark.parametrize("wrong", [None, inflated_ratio, off_by_one, other_temperature])
def test_a_wrong_decoder_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, wrong: Callable | None
) -> None:
    if wrong:
        monkeypatch.setattr("specmtp.ledger.arms.Decoder", wrong)
    output = tmp_path / "ledger.json"
    code = bench.main(
        [
            "--pretrained",
            "--arms",
            "draft",
            "--gammas",
            "1",
            "--tokens",
            "60",
            "--repeats",
            "2",
            "--output",
            str(output),
        ]
    )
    ledger = json.loads(output.read_text("utf-8"))
    plain, arm = ledger["rows"]
    assert plain["checks_passed"]
    assert (code, arm["checks_passed"], arm["speedup"] is None) == ((1, False, True) if wrong else (0, True, False))
    assert ("not exact" in capsys.readouterr().out) == bool(wrong)


def test_without_the_text_what_needs_it_is_null_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.delenv("SPECMTP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.download_url_to_file", lambda *a, **k: pytest.fail("nothing is downloaded"))
    output = tmp_path / "ledger.json"
    args = ["--pretrained", "--arms", "mtp", "--gammas", "1", "--tokens", "30", "--repeats", "2", "--draws", "2000"]
    assert bench.main([*args, "--output", str(output)]) == 0
    ledger = json.loads(output.read_text("utf-8"))
    arm = ledger["rows"][1]
    assert arm["alpha_exact"]["validation"] is None and 0.7 < arm["alpha_exact"]["own"] < 1
    assert "SPECMTP_DATA" in ledger["provenance"]["validation_text_missing"]
    assert "SPECMTP_DATA" in capsys.readouterr().err
    assert 1.4 < ledger["models"]["target"]["val_loss"] < 1.6  # of the training's record, which comes along
    assert ledger["provenance"]["prompt"] == "ROMEO:\n"
