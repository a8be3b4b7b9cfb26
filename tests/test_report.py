"""Pictures and tables say what the data says."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from training_run import fit

from callbacks import MetricsFile
from specmtp.report.curves import draw_curves, draw_ladder
from specmtp.report.drafters import drafters_table
from specmtp.report.lambda_depth import collect as collect_lambda_depth
from specmtp.report.lambda_depth import lambda_depth_table
from specmtp.report.markdown import TABLES, print_table
from specmtp.report.objectives import collect as collect_objectives
from specmtp.report.objectives import objectives_table
from specmtp.report.plots import speed_and_distortion
from specmtp.report.reference import figures
from specmtp.report.results import collect
from specmtp.report.seeds import collect as collect_seeds
from specmtp.report.seeds import seeds_table
from specmtp.usage import command_line

ROOT = Path(__file__).parent.parent
QUOTES = re.compile(r"<!-- (\w+): (\S+) -->\n(.*?)\n<!-- end -->", re.DOTALL)
"""A table that the README quotes: its name, the ledger, the text."""


def test_every_table_of_the_readme_is_its_ledgers() -> None:
    quotes = QUOTES.findall((ROOT / "README.md").read_text("utf-8"))
    assert quotes
    tables = {**TABLES, "seeds": seeds_table, "objectives": objectives_table, "lambda_depth": lambda_depth_table}
    assert {name for name, _, _ in quotes} >= {*TABLES, "seeds"} - {"drafters", "rules"}
    for name, path, text in quotes:
        source = json.loads((ROOT / path).read_text("utf-8"))
        assert text.strip() == tables[name](source)
        assert name not in TABLES or source["checks"]["passed"]


def test_the_reference_experiment_is_reproduced() -> None:
    ledger = json.loads((ROOT / "results" / "reference_cpu" / "ledger.json").read_text("utf-8"))
    found = figures(ledger)
    assert len(found) == 11 and all(figure.holds for figure in found)
    models = ledger["models"]
    assert {name: models[name]["step"] for name in models} == {
        "target": 5000, "mtp": 5000, "draft": 3000, "control": 5000
    }  # fmt: skip
    assert [models[name]["parameters"] for name in ("target", "mtp", "draft")] == [742_849, 214_528, 54_657]
    wrong = {**ledger, "models": {**models, "draft": {**models["draft"], "val_loss": 1.93}}}
    assert [figure.name for figure in figures(wrong) if not figure.holds] == ["draft validation loss, 3,000 steps"]
    assert "**missed**" in TABLES["figures"](wrong)
    with pytest.raises(ValueError, match="no control"):
        figures({**ledger, "models": {**models, "control": None}})


def test_committed_ledgers_keep_the_schema() -> None:
    schema = json.loads((ROOT / "specmtp" / "ledger" / "ledger.schema.json").read_text("utf-8"))
    for file in (ROOT / "results").rglob("ledger.json"):
        jsonschema.validate(json.loads(file.read_text("utf-8")), schema)


def test_committed_ledgers_name_their_machine_and_no_paths() -> None:
    ledgers = list((ROOT / "results").rglob("ledger.json"))
    assert ledgers
    for file in ledgers:
        text = file.read_text("utf-8")
        where = json.loads(text)["provenance"]
        assert where["device_name"] and where["threads"] and where["commit"] and where["torch"]
        assert not re.search(r'"/\w+/', text), "an absolute path of the machine"


def test_runs_leave_metrics_scalars_and_a_picture(tmp_path: Path) -> None:
    fit(tmp_path, [MetricsFile()])
    collect(str(tmp_path / "results"), [str(tmp_path / "runs" / "run")])
    kept = {f.name for f in (tmp_path / "results").iterdir()}
    assert kept == {"metrics_run.json", "scalars.csv", "acceptance.png"}
    table = (tmp_path / "results" / "scalars.csv").read_text("utf-8").splitlines()
    assert table[0] == "run,tag,step,value"
    losses = [line.split(",") for line in table if ",val/loss_main," in line]
    wanted = json.loads((tmp_path / "results" / "metrics_run.json").read_text("utf-8"))["curve"]
    assert [(int(step), pytest.approx(float(value))) for _, _, step, value in losses] == [
        (point["step"], point["val/loss_main"]) for point in wanted
    ]
    assert not re.search(r'"/\w+/', (tmp_path / "results" / "metrics_run.json").read_text("utf-8"))
    with pytest.raises(ValueError, match=r"has no metrics\.json"):
        collect(str(tmp_path / "results"), [str(tmp_path)])


def test_curves_are_drawn(tmp_path: Path) -> None:
    points = [
        {"step": s, "decode/mtp_g1/acceptance_rate": 0.5, "decode/draft_g4/acceptance_rate": 0.4, "val/loss_main": 2.0}
        | {"val/loss_kl": 0.1, "val/loss_log_alpha_mtp2": 0.1, "decode/mtp_g1_block/acceptance_rate": 0.6}
        for s in (10, 20)
    ]
    (tmp_path / "metrics.json").write_text(json.dumps({"curve": points}))
    draw_curves(str(tmp_path), str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    draw_curves(str(tmp_path / "metrics.json"), str(tmp_path / "a.svg"))
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "MTP" in svg and "draft" in svg and "block verification" in svg
    with pytest.raises(ValueError, match="has no ladder"):
        draw_ladder(str(tmp_path))
    points[0]["ladder/mtp/4_acceptance_rate"] = 0.5
    (tmp_path / "metrics.json").write_text(json.dumps({"curve": points}))
    draw_ladder(str(tmp_path), str(tmp_path / "b.svg"))
    assert "sampled acceptance" in (tmp_path / "b.svg").read_text("utf-8")


def test_seeds_of_one_length_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, step, loss in ((1, 10, 1.0), (2, 10, 1.2), (3, 20, 1.4)):
        final = {"val/loss_main": loss, "ladder/mtp/3_alpha_exact_own": 0.5}
        metrics = {"seed": seed, "step": step, "final": final, "curve": [], "corpus": {"name": "c", "origin": "/x"}}
        (tmp_path / f"run{seed}").mkdir()
        (tmp_path / f"run{seed}" / "metrics.json").write_text(json.dumps(metrics))
    runs = [str(tmp_path / f"run{seed}") for seed in (1, 2, 3)]
    collect_seeds(str(tmp_path / "out"), runs[:2])
    assert "| target's validation loss | 1.000 | 1.200 | 1.100 | 0.141 |" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "seeds.json").read_text("utf-8"))
    assert [s["seed"] for s in summary["runs"]] == [1, 2] and summary["device_name"] and "/x" not in str(summary)
    with pytest.raises(ValueError, match="runs of one length are wanted, got 10, 20 steps"):
        collect_seeds(str(tmp_path / "out"), runs)
    with pytest.raises(ValueError, match="no run was named"):
        collect_seeds(str(tmp_path / "out"), [])


def test_weights_and_depths_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for i, (seed, weight, depth, loss) in enumerate([(1, 0, 0, 1.5), (1, 0.3, 2, 1.6), (2, 0.3, 2, 1.8)]):
        final = {"val/loss_main": loss}
        final |= {f"decode/mtp_g{g}/tokens_per_target_forward": 1 + 0.1 * g + seed for g in (1, 2, 4)} if depth else {}
        metrics = {
            "seed": seed, "step": 600, "final": final, "mtp_weight": weight, "mtp_depth": depth, "seconds": 5.0,
            "parameters": {"mtp": 1000 * depth}, "corpus": {"name": "c", "origin": "/x"},
        }  # fmt: skip
        runs.append(str(tmp_path / f"run{i}"))
        (tmp_path / f"run{i}").mkdir()
        (tmp_path / f"run{i}" / "metrics.json").write_text(json.dumps(metrics))
    collect_lambda_depth(str(tmp_path / "out"), runs)
    out = capsys.readouterr().out
    assert "| 0 | 0 | 1 | 1.500 | 1 | 1 | 1 | 0 | 5 |" in out
    assert "| 0.3 | 2 | 2 | 1.700 ± 0.141 | 2.60 | 2.70 | 2.90 | 2,000 | 5 |" in out
    assert (tmp_path / "out" / "lambda_depth.png").read_bytes().startswith(b"\x89PNG")
    assert "/x" not in (tmp_path / "out" / "lambda_depth.json").read_text("utf-8")


def test_objectives_are_compared_seed_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for objective, own_text, seed, alpha in (
        ("cross_entropy", 0, 1, 0.7),
        ("cross_entropy", 0, 2, 0.75),
        ("kl", 0.5, 1, 0.85),
        ("kl", 0, 1, 0.8),
        ("kl", 0, 2, 0.8),
    ):
        run = tmp_path / f"{objective}{seed}_{own_text}"
        run.mkdir()
        final = {"val/alpha_exact": alpha, "val/loss_main": 1.5}
        metrics = {"seed": seed, "step": 9, "final": final, "seconds": 3, "corpus": {"name": "c", "origin": "/x"}}
        (run / "metrics.json").write_text(json.dumps(metrics))
        (run / "hparams.yaml").write_text(f"objective: {objective}\nown_text: {own_text}\n")
        runs.append(str(run))
    collect_objectives(str(tmp_path / "out"), runs)
    out = capsys.readouterr().out
    assert "| forward KL | 0.800 | 0.800 | 0.800 | +0.050 | 1.500 | 3 |" in out
    assert "| forward KL, 50% own text | 0.850 | – | 0.850 | +0.150 | 1.500 | 3 |" in out
    assert "| cross-entropy | 0.700 | 0.750 | 0.725 | – | 1.500 | 3 |" in out
    (tmp_path / "kl1_0" / "hparams.yaml").write_text("seed: 1\n")
    with pytest.raises(ValueError, match="trained without a target"):
        collect_objectives(str(tmp_path / "out"), runs)


def test_runs_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    for name, text in (("a", "one"), ("b", "two")):
        corpus = {"name": text, "sha256": text, "origin": text}
        metrics = {
            "seed": 1, "step": 9, "seconds": 1, "mtp_depth": 1, "mtp_weight": 0.3, "parameters": {"mtp": 1},
            "final": {"val/loss_main": 1.0}, "corpus": corpus,
        }  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.json").write_text(json.dumps(metrics))
    runs = [str(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(ValueError, match="runs of one text are wanted, got one, two"):
        collect_seeds(str(tmp_path / "out"), runs)
    with pytest.raises(ValueError, match="no such run: its record has no decode/mtp_g1/tokens_per_target_forward"):
        collect_lambda_depth(str(tmp_path / "out"), runs[:1])
    (tmp_path / "a" / "hparams.yaml").write_text("objective: kl\nown_text: 0\n")
    with pytest.raises(ValueError, match="no such run: its record has no val/alpha_exact"):
        collect_objectives(str(tmp_path / "out"), runs[:1])


def test_damaged_records_are_told(tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    for content in ({"a": 1}, {"corpus": None, "final": {}, "step": 1}, {"corpus": {}, "final": {}, "step": 1}):
        file.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="is not what a run writes: look at its corpus"):
            collect_seeds(str(tmp_path / "out"), [str(tmp_path)])
    for content in ('{"a": 1}', '{"curve": [1]}', '{"curve":'):
        file.write_text(content)
        with pytest.raises(ValueError, match=r"metrics\.json is not what a run writes: look at its curve"):
            draw_curves(str(tmp_path))
    with pytest.raises(ValueError, match="no run was named"):
        collect(str(tmp_path / "results"), [])
    assert not (tmp_path / "results").exists()


def test_one_seed_is_no_summary_and_the_older_one_stays(tmp_path: Path) -> None:
    metrics = {"seed": 1, "step": 9, "final": {}, "curve": [], "corpus": {"name": "c"}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "seeds.json").write_text("older")
    with pytest.raises(ValueError, match="at least two seeds"):
        collect_seeds(str(tmp_path), [str(tmp_path)])
    assert (tmp_path / "seeds.json").read_text() == "older"


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ("x --tabel rows", "there is no option 'tabel': did you mean 'table'?"),
        ("x --table nope", "table: one of 'rows', 'figures'"),
        ("", "the following arguments are required: ledger"),
        ("nowhere.json", "there is no ledger at nowhere.json"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence(
    args: str, wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["markdown", *args.split()])
    with pytest.raises(SystemExit) as stopped:
        command_line(print_table)
    told = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and len(told) == 1 and wanted in told[0]


def test_a_drafter_that_failed_has_a_line_without_speed() -> None:
    ledger = json.loads((ROOT / "results" / "rules_cpu" / "ledger.json").read_text("utf-8"))
    for row in ledger["rows"]:
        row["speedup"] = None if row["method"] == "distilled" else row["speedup"]
    line = next(line for line in drafters_table(ledger).splitlines() if line.startswith("| distilled"))
    assert line.endswith("not exact |")


def test_greedy_rows_have_no_distortion() -> None:
    ledger = json.loads((ROOT / "results" / "rules_cpu" / "ledger.json").read_text("utf-8"))
    for row in ledger["rows"]:
        row["temperature"] = 0
    assert speed_and_distortion(ledger) is None


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no metrics\.json"):
        draw_curves(str(tmp_path))
    (tmp_path / "metrics.json").write_text('{"curve": []}')
    with pytest.raises(ValueError, match="no validation yet"):
        draw_curves(str(tmp_path))
    with pytest.raises(ValueError, match=r"bench\.py writes one"):
        print_table(str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="is no ledger"):
        print_table(str(tmp_path / "metrics.json"))
