"""A ledger's pictures: drawn where there are figures, from the ledger alone."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from specmtp.report.files import read_ledger
from specmtp.report.plots import draw_plots, plot_file

LEDGER = Path(__file__).parent.parent / "results" / "reference_cpu" / "ledger.json"


@pytest.fixture
def ledger() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LEDGER.read_text("utf-8"))
    return found


def names(files: list[Path]) -> set[str]:
    return {file.stem.removeprefix("l_") for file in files}


def test_pictures_are_drawn_and_say_what_they_show(ledger: dict[str, Any], tmp_path: Path) -> None:
    files = draw_plots(ledger, tmp_path / "l")
    assert names(files) == {"speedup", "acceptance", "waterfall"} and len(files) == 6
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in files if f.suffix == ".png")
    svg = {f.stem: f.read_text("utf-8") for f in files if f.suffix == ".svg"}
    assert all(word in svg["l_speedup"] for word in ("MTP", "draft", "theory")) and "unexplained" in svg["l_waterfall"]


def test_distortion_is_drawn_where_a_rule_is_lossy(tmp_path: Path) -> None:
    for folder, wanted in (("rules_cpu", True), ("drafters_cpu", False)):
        ledger = json.loads((LEDGER.parent.parent / folder / "ledger.json").read_text("utf-8"))
        assert ("distortion" in {f.stem.split("_")[-1] for f in draw_plots(ledger, tmp_path / folder)}) == wanted


def test_without_drafters_there_is_the_waterfall_of_plain_alone(ledger: dict[str, Any], tmp_path: Path) -> None:
    ledger["rows"] = [row for row in ledger["rows"] if row["method"] == "plain"]
    assert names(draw_plots(ledger, tmp_path / "l")) == {"waterfall"}
    for row in ledger["rows"]:
        row["waterfall"] = None
    assert draw_plots(ledger, tmp_path / "l") == []


def test_batches_are_drawn_where_there_are_several(ledger: dict[str, Any], tmp_path: Path) -> None:
    more = []
    for row in ledger["rows"]:
        if row["window_rule"] == "sliding" and not row["id"].endswith("_greedy"):
            twin = copy.deepcopy(row)
            twin.update(id=f"{row['id']}_b4", batch=4)
            if twin["speedup"]:
                twin["speedup"].update(baseline=f"{row['speedup']['baseline']}_b4", low=None, high=None)
            more.append(twin)
    ledger["rows"] += more
    assert "batch" in names(draw_plots(ledger, tmp_path / "l"))


def test_what_is_no_ledger_is_told(tmp_path: Path) -> None:
    whole = {"provenance": {"a": 1}, "models": {"a": 1}, "checks": {"a": 1}, "sample": {"a": 1}, "verdict": "x"}
    shallow, wrong = (json.dumps({**whole, "rows": rows}) for rows in ([1], 1))
    for text in ("", "[1]", "{}", "null", shallow, wrong):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ValueError, match="is no ledger"):
            read_ledger(str(tmp_path / "x.json"))
    with pytest.raises(ValueError, match="there is no ledger"):
        plot_file(str(tmp_path / "none.json"))
