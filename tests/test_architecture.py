"""The house: imports point down, Lightning stays in its rooms, nothing heavy is hidden."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = [
    "train", "bench", "callbacks", "specmtp.report", "specmtp.ledger", "specmtp.analysis", "specmtp.training",
    "specmtp.pretrained", "specmtp.checkpoint", "specmtp.decoding", "specmtp.nn", "specmtp.data",
]  # fmt: skip
SHARED = {"specmtp.errors", "specmtp.usage"}
"""Plain helpers of the entry points, which import nothing of the project but each other."""
LIGHTNING = {"train", "callbacks", "specmtp.training", "specmtp.data"}


def modules() -> list[tuple[str, Path]]:
    files = [*ROOT.glob("*.py"), *ROOT.glob("specmtp/**/*.py"), *ROOT.glob("callbacks/**/*.py")]
    return [(".".join(f.relative_to(ROOT).with_suffix("").parts), f) for f in files]


def room(module: str) -> str | None:
    return next((r for r in ROOMS if module == r or module.startswith(r + ".")), None)


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


@pytest.mark.parametrize("module, file", modules(), ids=lambda x: x if isinstance(x, str) else "")
def test_imports_point_down(module: str, file: Path) -> None:
    own = room(module)
    for name in imports(file):
        other = room(name)
        if other is None or name == "specmtp":
            continue
        assert own is not None, f"{module} imports {name}, but stands outside the house"
        assert ROOMS.index(own) <= ROOMS.index(other), f"{module} imports upwards: {name}"


@pytest.mark.parametrize("module, file", modules(), ids=lambda x: x if isinstance(x, str) else "")
def test_lightning_stays_in_its_rooms(module: str, file: Path) -> None:
    if any(name.split(".")[0] == "lightning" for name in imports(file)):
        assert room(module) in LIGHTNING


def test_every_module_has_a_room() -> None:
    for module, _ in modules():
        assert room(module) or module in SHARED or module.endswith("__init__"), module


def test_the_rule_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "cache.py"
    file.write_text("from specmtp.decoding.loop import Decoder\n")
    with pytest.raises(AssertionError):
        test_imports_point_down("specmtp.nn.cache", file)
