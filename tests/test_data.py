"""Text to symbols to windows."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specmtp.data import corpus
from specmtp.data.corpus import load_corpus, read_text
from specmtp.data.datamodule import TextDataModule
from specmtp.data.vocabulary import Vocabulary
from specmtp.data.windows import PAD, num_starts, training_windows, validation_windows

SHAKESPEARE_SYMBOLS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@given(st.text(min_size=1))
def test_encode_decode_round_trip(text: str) -> None:
    vocabulary = Vocabulary.from_text(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert len(vocabulary) == len(set(text))


@pytest.mark.parametrize(
    "symbols, text, wanted",
    [
        (SHAKESPEARE_SYMBOLS, "Act 1", ("'1'", "U+0031", "offset 4")),
        ("e\u00e9", "e\u0301", ("U+0301", "offset 1")),
        ("ab", "\U0001f600", ("U+1F600", "offset 0")),
        ("ab", "a\x00", ("U+0000", "offset 1")),
    ],
)
def test_unknown_character_is_named(symbols: str, text: str, wanted: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the prompt") as error:
        Vocabulary(symbols).encode(text, "the prompt")
    assert all(part in str(error.value) for part in wanted)


def test_known_prompts() -> None:
    vocabulary = Vocabulary(SHAKESPEARE_SYMBOLS)
    assert len(vocabulary) == 65
    for text in ("Act 3", " ", "\n", ""):
        assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize("bad", [65, -1, 10**9])
def test_foreign_ids(bad: int) -> None:
    with pytest.raises(ValueError, match=str(bad)):
        Vocabulary(SHAKESPEARE_SYMBOLS).decode([0, bad])


def test_vocabularies_by_digest() -> None:
    assert Vocabulary("abc").digest == Vocabulary("abc").digest
    assert Vocabulary("abc").digest != Vocabulary("acb").digest
    for bad in ("", "aba"):
        with pytest.raises(ValueError):
            Vocabulary(bad)


@pytest.mark.parametrize("raw, wanted", [(b"ab\r\ncd\r\n", "ab\ncd\n"), (b"\xef\xbb\xbfab", "ab"), (b"a\rb", "a\nb")])
def test_newlines_and_byte_order_mark(tmp_path: Path, raw: bytes, wanted: str) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(raw)
    assert read_text(file) == wanted


def test_bad_files_are_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"text\.txt is not UTF-8: bad byte at offset 3"):
        read_text(file)
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ValueError, match=str(path)):
            read_text(path)
    with pytest.raises(ValueError, match="tinyshakespeare, stdlib"):
        load_corpus("tinyshakespear")


def test_reading_does_not_depend_on_the_locale(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("naïve 日本 🎭", encoding="utf-8")
    code = "import sys, pathlib, specmtp.data.corpus as c; print(len(c.read_text(pathlib.Path(sys.argv[1]))))"
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        cwd=root,
        env={"LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "10", done.stderr


@pytest.mark.parametrize("tokens, block, wanted", [(9, 8, 1), (10, 8, 2), (100, 8, 92)])
def test_number_of_windows(tokens: int, block: int, wanted: int) -> None:
    assert num_starts(tokens, block) == wanted


@pytest.mark.parametrize("tokens", [0, 8])
def test_too_short(tokens: int) -> None:
    with pytest.raises(ValueError, match=f"need at least 9 characters, got {tokens}"):
        training_windows(torch.arange(tokens), 8, 4, seed=0, step=0)


def test_training_windows_are_a_function_of_seed_and_step() -> None:
    tokens = torch.arange(200)
    a = training_windows(tokens, 8, 16, seed=1, step=5)
    assert torch.equal(a, training_windows(tokens, 8, 16, seed=1, step=5))
    assert not torch.equal(a, training_windows(tokens, 8, 16, seed=1, step=6))
    assert not torch.equal(a, training_windows(tokens, 8, 16, seed=2, step=5))
    assert torch.equal(a[:, 1:] - a[:, :-1], torch.ones(16, 8, dtype=torch.long))


def test_training_windows_reach_both_ends() -> None:
    windows = training_windows(torch.arange(10), 8, 64, seed=0, step=0)
    assert set(windows[:, 0].tolist()) == {0, 1}


@given(st.integers(4, 60), st.integers(1, 3))
def test_validation_windows_hold_every_target_once(num_tokens: int, block: int) -> None:
    windows = validation_windows(torch.arange(num_tokens), block)
    targets = windows[:, 1:]
    assert targets[targets != PAD].tolist() == list(range(1, num_tokens))
    assert windows[:, 0].tolist() == list(range(0, num_tokens - 1, block))


def test_short_parts_are_told_before_training(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("abcdefghij" * 10)
    with pytest.raises(ValueError, match=r"validation text is too short.*got 10"):
        _ = TextDataModule(path=str(file), block_size=32).parts
    file.write_text("")
    with pytest.raises(ValueError, match="empty"):
        _ = TextDataModule(path=str(file)).vocabulary


def test_symbol_of_the_validation_part_alone_is_known(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("ab" * 500 + "z" * 100)
    data = TextDataModule(path=str(file), block_size=8)
    assert data.symbols == "abz"
    assert 2 not in data.parts[0]


def test_stdlib_corpus_is_ascii_text() -> None:
    text = load_corpus("stdlib").text
    assert len(text) == corpus.STDLIB_CHARACTERS
    assert set(text) <= {"\n", *map(chr, range(32, 127))}
    assert text == load_corpus("stdlib").text


def test_tinyshakespeare(shakespeare: Path) -> None:
    found = load_corpus("tinyshakespeare")
    assert found.sha256 == corpus.TINYSHAKESPEARE_SHA256
    assert len(found.text) == 1_115_394
    assert Vocabulary.from_text(found.text).symbols == SHAKESPEARE_SYMBOLS
    assert load_corpus("stdlib", str(shakespeare)).name == "tinyshakespeare"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to download from, and an empty cache."""
    monkeypatch.delenv("SPECMTP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "input.txt"
    file.write_text("To be, or not to be.\n" * 20)
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE_URL", file.as_uri())
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return file


def test_download_once_then_offline(mirror: Path) -> None:
    wanted = mirror.read_text()
    assert load_corpus("tinyshakespeare").text == wanted
    mirror.unlink()
    assert load_corpus("tinyshakespeare").text == wanted


def test_truncated_cache_is_replaced(mirror: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "specmtp" / "tinyshakespeare.txt"
    cached.parent.mkdir(parents=True)
    cached.write_text("To be")
    assert load_corpus("tinyshakespeare").text == mirror.read_text()


@pytest.mark.parametrize("damage", ["absent", "wrong"])
def test_failed_download_leaves_nothing(mirror: Path, tmp_path: Path, damage: str) -> None:
    if damage == "absent":
        mirror.unlink()
    else:
        mirror.write_text("something else")
    with pytest.raises(ValueError, match=r"--data.corpus stdlib"):
        load_corpus("tinyshakespeare")
    assert not list((tmp_path / "cache" / "specmtp").glob("*"))
