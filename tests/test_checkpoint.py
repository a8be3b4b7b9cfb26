"""Checkpoints: what is wanted and absent is named, what could run code is refused."""

import os
from pathlib import Path

import pytest
import torch
from conftest import SMALL, small_target

from specmtp.checkpoint import find_newest, load, pack
from specmtp.data.vocabulary import Vocabulary
from specmtp.ledger.model_rows import models_json
from specmtp.ledger.models import Models, usual_prompt, validation_ids
from specmtp.nn.mtp import MultiTokenGPT

SYMBOLS = Vocabulary("abcdefghijklm")


def save(
    file: Path, net: MultiTokenGPT, role: str = "target", vocabulary: Vocabulary = SYMBOLS, **changes: object
) -> Path:
    weights = {f"net.{k}": v for k, v in net.state_dict().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    entry = pack(net, role, vocabulary)  # type: ignore[arg-type]
    torch.save({"specmtp": entry, "state_dict": weights, "global_step": 7, **changes}, file)
    return file


def test_round_trip(tmp_path: Path) -> None:
    net, ids = small_target(depth=2), torch.randint(13, (1, 9))
    found = load(save(tmp_path / "a.ckpt", net))
    assert (found.role, found.step, found.vocabulary) == ("target", 7, SYMBOLS)
    assert all(torch.equal(a, b) for a, b in zip(found.net(ids), net(ids), strict=True))
    assert not found.net.training and not any(p.requires_grad for p in found.net.parameters())


def test_shared_modules_stay_shared(tmp_path: Path) -> None:
    shared, one = small_target(depth=3, shared=True), small_target(depth=1)
    found = load(save(tmp_path / "a.ckpt", shared)).net
    assert found.mtp.at(1) is found.mtp.at(3)
    size = (tmp_path / "a.ckpt").stat().st_size
    assert size - save(tmp_path / "b.ckpt", one).stat().st_size < 4096
    before = found(torch.tensor([[1, 2, 3]]))[1]
    found.gpt.lm_head.weight[3] += 1
    assert not torch.equal(before, found(torch.tensor([[1, 2, 3]]))[1])


def test_opened_without_mtp(tmp_path: Path) -> None:
    net, ids = small_target(depth=1), torch.randint(13, (1, 9))
    found = load(save(tmp_path / "a.ckpt", net), with_mtp=False)
    assert torch.equal(found.net(ids)[0], net(ids)[0])
    assert len(found.net(ids)) == 1
    assert "mtp.modules_by_depth.0.proj.weight" in found.notes[0]


@pytest.mark.parametrize("key", ["mtp.modules_by_depth.0.proj.weight", "gpt.embed_tokens.weight"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    net = small_target(depth=1)
    weights = {f"net.{k}": v for k, v in net.state_dict().items() if k != key}
    with pytest.raises(ValueError, match=key):
        load(save(tmp_path / "a.ckpt", net, state_dict=weights))


def test_foreign_shapes_and_keys(tmp_path: Path) -> None:
    net = small_target(depth=1)
    weights = {f"net.{k}": v for k, v in net.state_dict().items()}
    with pytest.raises(ValueError, match=r"extra\.weight"):
        load(save(tmp_path / "a.ckpt", net, state_dict={**weights, "net.extra.weight": torch.zeros(1)}))
    weights["net.gpt.norm.weight"] = torch.zeros(5)
    with pytest.raises(ValueError, match=r"gpt\.norm\.weight"):
        load(save(tmp_path / "a.ckpt", net, state_dict=weights))
    with pytest.raises(ValueError, match="3 symbols for a network of 13"):
        load(save(tmp_path / "a.ckpt", net, vocabulary=Vocabulary("abc")))


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


def test_code_in_a_pickle_is_refused(tmp_path: Path) -> None:
    file, marker = tmp_path / "evil.ckpt", tmp_path / "marker"
    torch.save({"specmtp": Bomb(marker)}, file)
    with pytest.raises(ValueError, match=r"evil\.ckpt"):
        load(file)
    assert not marker.exists()


@pytest.mark.parametrize("raw", [b"", b"garbage", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x00" * 4096])
def test_damaged_files(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "bad.ckpt"
    file.write_bytes(raw)
    with pytest.raises(ValueError, match=r"bad\.ckpt"):
        load(file)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_truncated_files(tmp_path: Path, part: float) -> None:
    file = save(tmp_path / "cut.ckpt", small_target())
    raw = file.read_bytes()
    file.write_bytes(raw[: int(part * len(raw))])
    with pytest.raises(ValueError, match=r"cut\.ckpt"):
        load(file)


def test_foreign_files_and_places(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    for name in ("other.ckpt", "list.ckpt", "none.ckpt", "."):
        with pytest.raises(ValueError):
            load(tmp_path / name)


@pytest.mark.parametrize(
    "damage",
    [
        {"net": None}, {"net": {"extra": 1}}, {"net": {"d_model": "wide"}}, {"mtp_depth": "one"}, {"mtp_depth": -1},
        {"vocabulary": None}, {"role": "judge"},
    ],
)  # fmt: skip
def test_damaged_descriptions_name_the_file(tmp_path: Path, damage: dict) -> None:
    net = small_target()
    entry = {**pack(net, "target", SYMBOLS), **damage}
    with pytest.raises(ValueError, match=r"a\.ckpt"):
        load(save(tmp_path / "a.ckpt", net, specmtp=entry))


def test_other_damage_names_the_file(tmp_path: Path) -> None:
    net = small_target()
    with pytest.raises(ValueError, match=r"a\.ckpt"):
        load(save(tmp_path / "a.ckpt", net, state_dict=None))
    with pytest.raises(ValueError, match=r"a\.ckpt"):
        load(save(tmp_path / "a.ckpt", net, global_step=None))
    net.gpt.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match=r"gpt\.norm\.weight.*diverged"):
        load(save(tmp_path / "a.ckpt", net))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"corpus": null}', '{"corpus": {"name": "x"}, "val_fraction": "y"}'])
def test_damaged_metrics_are_as_none(tmp_path: Path, text: str) -> None:
    file = save(tmp_path / "run" / "checkpoints" / "last.ckpt", small_target())
    (tmp_path / "run" / "metrics.json").write_text(text)
    ids, reason = validation_ids(load(file))
    assert ids is None and reason is not None and "last.ckpt" in reason
    assert usual_prompt(load(file)) == "a" and models_json(Models(load(file), None, []))["target"]["val_loss"] is None


def test_newest_of_role_and_vocabulary(tmp_path: Path) -> None:
    other = Vocabulary("ABCDEFGHIJKLM")
    names = {
        "old": ("target", SYMBOLS),
        "new": ("target", SYMBOLS),
        "draft": ("draft", SYMBOLS),
        "else": ("draft", other),
    }
    for age, (name, (role, vocabulary)) in enumerate(names.items()):
        file = save(tmp_path / name / "checkpoints" / "last.ckpt", MultiTokenGPT(SMALL), role, vocabulary)
        os.utime(file, (age, age))
    (tmp_path / "broken" / "checkpoints").mkdir(parents=True)
    (tmp_path / "broken" / "checkpoints" / "last.ckpt").write_bytes(b"")
    assert find_newest(tmp_path, "target") == tmp_path / "new/checkpoints/last.ckpt"
    assert find_newest(tmp_path, "draft", SYMBOLS) == tmp_path / "draft/checkpoints/last.ckpt"
    assert find_newest(tmp_path, "draft", other) == tmp_path / "else/checkpoints/last.ckpt"
    assert find_newest(tmp_path, "draft", Vocabulary("xyz")) is None
    assert find_newest(tmp_path / "nowhere", "target") is None
