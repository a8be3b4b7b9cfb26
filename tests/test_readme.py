"""The README's own code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_drafter_of_the_readme_is_exact(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code = re.search(r"<!-- example -->\n```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert code is not None and code[1].count("\n") < 45
    exec(code[1], {})
    said = re.fullmatch(r"(\d\.\d\d) tokens a target forward\nexact: True\n", capsys.readouterr().out)
    assert said is not None and float(said[1]) > 1.05
