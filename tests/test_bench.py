"""The bench: a whole ledger, and what becomes of every option."""

import json
import math
import re
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from conftest import SMALL, SMALL_DRAFT, sharpened
from test_checkpoint import save
from wrong_decoders import inflated

import bench
from specmtp.analysis.sampling_check import SamplingCheck
from specmtp.analysis.theory import expected_tokens
from specmtp.checkpoint import load
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.loop import Decoder
from specmtp.decoding.rules import RULES
from specmtp.ledger.arms import Arm
from specmtp.ledger.build import build_ledger, num_steps
from specmtp.ledger.closeup import MOST_SYMBOLS, position_json
from specmtp.ledger.files import write_json
from specmtp.nn.mtp import MultiTokenGPT
from specmtp.report.page import page_html


def test_json_is_strict_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "ledger.json"
    write_json(file, {"rate": None, "text": "γ \U0001f600"})
    before = file.read_bytes()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError):
            write_json(file, {"rate": bad})
    with pytest.raises(TypeError):
        write_json(file, {"rate": object()})
    assert file.read_bytes() == before and [f.name for f in tmp_path.iterdir()] == ["ledger.json"]


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    torch.manual_seed(0)
    target = sharpened(MultiTokenGPT(SMALL, 1))
    return {
        "target": save(tmp_path / "runs" / "main" / "checkpoints" / "last.ckpt", target),  # type: ignore[arg-type]
        "draft": save(tmp_path / "runs" / "draft" / "checkpoints" / "last.ckpt", MultiTokenGPT(SMALL_DRAFT), "draft"),
        "control": save(tmp_path / "control.ckpt", MultiTokenGPT(SMALL)),
        "foreign": save(tmp_path / "foreign.ckpt", MultiTokenGPT(SMALL_DRAFT), "draft", Vocabulary("ABCDEFGHIJKLM")),
    }


SCHEMA = Path(bench.__file__).parent / "specmtp" / "ledger" / "ledger.schema.json"


def run_bench(tmp_path: Path, *more: str) -> tuple[int, dict]:
    output = tmp_path / "out" / "ledger.json"
    code = bench.main(
        [
            "--runs-dir",
            str(tmp_path / "runs"),
            "--output",
            str(output),
            "--tokens",
            "40",
            "--prompts",
            "1",
            "--repeats",
            "5",
            "--draws",
            "10000",
            *more,
        ]
    )
    ledger = json.loads(output.read_text(), parse_constant=lambda word: pytest.fail(f"not strict JSON: {word}"))
    jsonschema.validate(ledger, json.loads(SCHEMA.read_text("utf-8")))
    return code, ledger


def test_every_backend_of_the_schema_is_every_backend() -> None:
    """A ledger of a CUDA host keeps it too."""
    lists = re.findall(r'"backend": \{\s*"enum": \[([^\]]*)\]', SCHEMA.read_text("utf-8"))
    assert len(lists) >= 7 and all({"compile", "cudagraph"} <= set(json.loads(f"[{names}]")) for names in lists)


def test_whole_ledger(
    tmp_path: Path, models: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    steps: list[str] = []
    expected: list[int] = []
    monkeypatch.setattr(bench, "build_ledger", lambda m, s, say, progress: build_ledger(m, s, say, steps.append))
    monkeypatch.setattr(bench, "num_steps", lambda m, s: expected.append(num_steps(m, s)) or expected[0])
    code, ledger = run_bench(tmp_path, "--gammas", "1,3", "--prompt", "abc")
    out, err = capsys.readouterr()
    assert code == 0 and ledger["checks"]["passed"]
    assert [r["id"] for r in ledger["rows"]] == ["plain", "draft_g1", "draft_g3", "mtp_g1", "mtp_g3"]
    assert str(models["target"]) in err and str(models["draft"]) in err
    last = json.loads(out.strip().splitlines()[-1])
    assert last["ledger"].endswith("ledger.json") and last["headline"] == ledger["verdict"]
    assert last["page"] == str(tmp_path / "out" / "report.html") and Path(last["page"]).read_text("utf-8") == page_html(
        ledger
    )
    for r in ledger["rows"]:
        assert r["emitted"] == r["accepted"] + r["rounds"] and r["target_forwards"] == r["rounds"]
        assert r["draft_forwards"] == r["gamma"] * r["rounds"]
        assert len(r["seconds"]["samples"]) == 5 and r["cache_bytes"] >= ledger["rows"][0]["cache_bytes"] > 0
        assert r["ms_per_token"] == pytest.approx(1000 * r["seconds"]["median"] / 40)
        assert (r["device"], r["backend"], r["dtype"]) == ("cpu", "eager", "float32")
        if r["method"] != "plain":
            assert r["expected_tokens"] == pytest.approx(expected_tokens(r["alpha"], r["gamma"]))
            assert r["theory_speedup"] == pytest.approx(r["expected_tokens"] / (r["gamma"] * r["c"] + 1))
            assert f"{r['alpha']:.3f}" in out
        assert sum(v for n, v in r["waterfall"].items() if n != "measured") == pytest.approx(r["waterfall"]["measured"])
        assert r["waterfall"]["measured"] == pytest.approx(1000 * r["ms_per_token"])
        assert r["tokens_interval"][0] <= r["tokens_per_target_forward"] <= r["tokens_interval"][1]
    assert len(ledger["samples"]) == 25 and len({s["arm"] for s in ledger["samples"][:5]}) == 5
    assert [(p["method"], len(p["predicted"])) for p in ledger["planner"]] == [("draft", 2), ("mtp", 2)]
    assert len(ledger["checks"]["joint"]) == 20 and all(c["passed"] for c in ledger["checks"]["joint"])
    assert {f.name for f in (tmp_path / "out").glob("*.png")} == {
        "ledger_speedup.png", "ledger_acceptance.png", "ledger_waterfall.png"
    }  # fmt: skip
    assert ledger["rows"][0]["speedup"]["median"] == 1 and ledger["rows"][0]["alpha"] is None
    sample = ledger["sample"]
    assert len(sample["text"]) == len(sample["marks"]) == 40
    assert "".join(played["emitted"] for played in sample["rounds"])[:40] == sample["text"]
    assert all(len(p["drafts"]) == len(p["p"]) == len(p["q"]) >= p["accepted"] for p in sample["rounds"])
    assert ledger["models"]["target"]["sha256"] != ledger["models"]["draft"]["sha256"]
    assert len(ledger["checks"]["greedy"]) == 8 and len(ledger["checks"]["sampling"]) == 5
    assert {(c["prompts"], c["tokens"]) for c in ledger["checks"]["greedy"]} == {(20, 48), (20, 600)}
    assert [(c["method"], c["gamma"], c["tokens"]) for c in ledger["checks"]["bigram"]] == [
        ("draft", 1, 10_000), ("mtp", 1, 10_000),
    ]  # fmt: skip
    assert len(steps) == expected[0]
    check_closeup(ledger["closeup"])


def check_closeup(closeup: dict) -> None:
    """Rounds keep the accept rule, and one of few drafts is the beginning of one of many; positions hold laws."""
    rounds = {(r["method"], r["gamma"]): r for r in closeup["rounds"]}
    assert list(rounds) == [(m, g) for m in ("draft", "mtp") for g in range(1, 9)]
    for (method, gamma), r in rounds.items():
        stays = [u * q < p for u, q, p in zip(r["u"], r["q"], r["p"], strict=True)]
        assert r["accepted"] == (stays.index(False) if False in stays else gamma)
        assert r["drafts"] == rounds[method, 8]["drafts"][:gamma]
    assert [(x["method"], x["draws"]) for x in closeup["positions"]] == [
        ("draft", 10_240), ("draft", 10_240), ("mtp", 10_240), ("mtp", 10_240)
    ]  # fmt: skip
    for x in closeup["positions"]:
        p, q, frequency = (np.array(x[name]) for name in ("p", "q", "frequency"))
        assert all(law.sum() == pytest.approx(1, abs=1e-5) for law in (p, q, frequency))
        assert x["beta"] == pytest.approx(np.minimum(p, q).sum(), abs=1e-5)
        assert x["tv"] == pytest.approx(abs(frequency - p).sum() / 2, abs=1e-5)
    assert [s["row"][:3] for s in closeup["samples"]] == ["dra", "mtp"]


def test_a_position_of_many_symbols_pools_the_rare_ones() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(600))
    q = p[::-1].copy()
    check = SamplingCheck(1000, 0, 1, 0, 1, [], None, 0, 0, 0, 0.5, True, p.tolist(), q.tolist(), p.tolist())
    symbols = "".join(map(chr, range(0x4E00, 0x4E00 + 600)))
    found = position_json(Arm("draft", 1), check, Vocabulary(symbols), [0])
    assert len(found["symbols"]) == len(found["p"]) == MOST_SYMBOLS + 1 and found["symbols"][-1] == ""
    assert sum(found["p"]) == pytest.approx(1, abs=1e-5) and found["p"][-1] < 88 / 600
    assert found["p"][0] == pytest.approx(p[symbols.index(found["symbols"][0])], rel=1e-6)


def test_lookup_has_rows_where_it_is_asked_for(tmp_path: Path, models: dict) -> None:
    code, ledger = run_bench(tmp_path, "--arms", "ngram,uncached", "--gammas", "2", "--prompt", "abcabcabcabc")
    assert code == 0 and [r["id"] for r in ledger["rows"]] == ["plain", "ngram_g2", "plain_uncached"]
    row = ledger["rows"][1]
    assert row["label"] == "n-gram γ=2" and row["c"] == 0 and row["theory_speedup"] == row["expected_tokens"]
    assert row["alpha"] is not None and row["waterfall"] is not None
    assert {c["method"] for c in ledger["checks"]["joint"]} == {"plain", "ngram"}
    assert [p["method"] for p in ledger["planner"]] == ["ngram"]


def test_drafters_under_names_of_their_own(tmp_path: Path, models: dict) -> None:
    target = load(models["target"]).net
    torch.manual_seed(7)
    heads = sharpened(MultiTokenGPT(SMALL, 2))
    heads.gpt.load_state_dict(target.gpt.state_dict())
    files = {"heads": save(tmp_path / "heads.ckpt", heads), "other": models["draft"]}  # type: ignore[arg-type]
    named = [word for name, file in files.items() for word in ("--drafter", f"{name}={file}")]
    code, ledger = run_bench(tmp_path, "--arms", "mtp", *named, "--gammas", "2")
    assert code == 0 and [r["id"] for r in ledger["rows"]] == ["plain", "mtp_g2", "heads_g2", "other_g2"]
    found = ledger["models"]["named"]
    assert (found["heads"]["role"], found["heads"]["depth"], found["other"]["role"]) == ("mtp", 2, "draft")
    assert {c["model"] for c in ledger["costs"]} == {"target", "mtp", "heads", "other"}
    rates = {r["method"]: r["alpha_exact"]["own"] for r in ledger["rows"]}
    assert rates["plain"] is None and len(set(rates.values())) == 4
    assert [p["method"] for p in ledger["planner"]] == ["mtp", "heads", "other"]
    assert all(c["passed"] for c in ledger["checks"]["joint"]) and len(ledger["closeup"]["samples"]) == 3


def test_further_drafters_must_fit(tmp_path: Path, models: dict) -> None:
    foreign = save(tmp_path / "other.ckpt", sharpened(MultiTokenGPT(SMALL, 1)))  # type: ignore[arg-type]
    for wrong, message in (
        (f"heads={foreign}", "belong to another target"),
        (f"heads={models['control']}", "without MTP modules"),
        (f"small={models['foreign']}", "different vocabularies"),
        ("small=nowhere.ckpt", "does not exist"),
        (f"draft={models['draft']}", "that name is taken"),
        (f"Small one={models['draft']}", "NAME=PATH is wanted"),
        ("small", "NAME=PATH is wanted"),
    ):
        with pytest.raises(ValueError, match=message):
            run_bench(tmp_path, "--drafter", wrong)
    with pytest.raises(ValueError, match="--rules knows token, block"):
        run_bench(tmp_path, "--rules", "blocks")
    with pytest.raises(ValueError, match="--plan is about the usual accept rule"):
        run_bench(tmp_path, "--rules", "block", "--plan")


def test_other_rules_have_rows_and_a_lossy_one_is_told_apart(tmp_path: Path, models: dict) -> None:
    options = ("--arms", "mtp", "--gammas", "1,3", "--rules", "block,exact_match,typical")
    code, ledger = run_bench(tmp_path, *options)
    rows = {r["id"]: r for r in ledger["rows"]}
    assert list(rows)[2:] == [
        "mtp_g3", "mtp_g3_block", "mtp_g1_exact_match", "mtp_g3_exact_match", "mtp_g1_typical", "mtp_g3_typical",
    ]  # fmt: skip
    assert code == 0 and ledger["checks"]["passed"] and "NOT EXACT" not in ledger["verdict"]
    joint = {rule: [c["passed"] for c in ledger["checks"]["joint"] if c["rule"] == rule] for rule in RULES}
    assert all(joint["token"] + joint["block"] + joint["exact_match"]) and not all(joint["typical"])
    typical = rows["mtp_g3_typical"]
    assert not typical["lossless"] and not typical["checks_passed"] and typical["speedup"] is not None
    assert rows["mtp_g3_block"]["acceptance_matches_beta"] is None
    assert all(r["lossless"] for r in ledger["rows"] if r["rule"] != "typical")
    assert "typical" not in ledger["verdict"]
    assert [len(p["predicted"]) for p in ledger["planner"]] == [2]
    assert [g["gain"] for g in ledger["rules"] if (g["gamma"], g["rule"]) == (1, "block")] == [0]
    gains = {g["rule"]: g["gain_interval"] for g in ledger["rules"] if g["gamma"] == 3}
    assert (
        list(gains) == ["token", "block", "exact_match", "typical"] and gains["exact_match"][1] < 0 < gains["block"][1]
    )


def test_several_prompts_until_the_time_is_spent(tmp_path: Path, models: dict, capsys: pytest.CaptureFixture) -> None:
    args = ("--gammas", "2", "--arms", "draft", "--prompts", "3", "--repeats", "auto", "--seconds", "1")
    _, ledger = run_bench(tmp_path, *args)
    where = ledger["provenance"]
    assert len(where["prompts"]) == len(set(where["prompts"])) == 3 and where["prompts"][0] == where["prompt"]
    assert where["precision"]["auto"] and f"repeats: {where['repeats']}; " in capsys.readouterr().err
    assert {len(r["seconds"]["samples"]) for r in ledger["rows"]} == {3 * where["repeats"]}
    assert {r["prompts"] for r in ledger["rows"]} == {3}


def test_a_plan_alone_writes_no_ledger(tmp_path: Path, models: dict, capsys: pytest.CaptureFixture) -> None:
    runs, output = str(tmp_path / "runs"), tmp_path / "ledger.json"
    assert bench.main(["--runs-dir", runs, "--output", str(output), "--gammas", "1,2", "--plan"]) == 0
    out = capsys.readouterr().out
    plans = json.loads(out.strip().splitlines()[-1])["plan"]
    assert [(p["method"], [g["gamma"] for g in p["predicted"]]) for p in plans] == [("draft", [1, 2]), ("mtp", [1, 2])]
    assert all(p["regret"] is None for p in plans) and "γ* predicted" in out and not output.exists()


def test_arms_that_cannot_be_are_left_out_or_refused(
    tmp_path: Path, models: dict, capsys: pytest.CaptureFixture
) -> None:
    code, ledger = run_bench(tmp_path, "--target", str(models["control"]), "--gammas", "2")
    assert code == 0 and [r["id"] for r in ledger["rows"]] == ["plain", "draft_g2"]
    assert "trained without MTP" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"--arms mtp: .* trained without MTP"):
        run_bench(tmp_path, "--target", str(models["control"]), "--arms", "mtp")


def test_uncached_twins_have_rows_of_their_own(tmp_path: Path, models: dict) -> None:
    code, ledger = run_bench(tmp_path, "--arms", "mtp,uncached", "--gammas", "1")
    assert code == 0
    rows = {r["id"]: r for r in ledger["rows"]}
    assert list(rows) == ["plain", "mtp_g1", "plain_uncached", "mtp_g1_uncached"]
    for name, r in rows.items():
        assert r["window_rule"] == ("crop" if "uncached" in name else "sliding")
        assert r["speedup"]["baseline"] == ("plain_uncached" if "uncached" in name else "plain")
    assert rows["plain_uncached"]["seconds"]["samples"] and "uncached" not in ledger["sample"]["row"]
    assert {c["backend"] for c in ledger["costs"]} == {"eager", "uncached"}


def test_greedy_twins_are_timed_at_temperature_0(tmp_path: Path, models: dict) -> None:
    code, ledger = run_bench(tmp_path, "--arms", "draft,greedy", "--gammas", "2")
    assert code == 0
    rows = {r["id"]: r for r in ledger["rows"]}
    assert list(rows) == ["plain", "draft_g2", "plain_greedy", "draft_g2_greedy"]
    assert [r["temperature"] for r in rows.values()] == [1, 1, 0, 0]
    greedy = rows["draft_g2_greedy"]
    _, once = run_bench(tmp_path, "--arms", "draft,greedy", "--gammas", "2", "--repeats", "1")
    same = next(r for r in once["rows"] if r["id"] == "draft_g2_greedy")
    assert greedy["tokens_interval"] == same["tokens_interval"]  # five times one text say no more than once
    assert greedy["speedup"]["baseline"] == "plain_greedy" and greedy["checks_passed"]
    assert len({(c["method"], c["backend"]) for c in ledger["checks"]["sampling"]}) == 2
    (by_temperature,) = ledger["acceptance_by_temperature"]
    assert by_temperature["temperature"][0] == 0 and by_temperature["validation"] is None
    at = dict(zip(by_temperature["temperature"], by_temperature["own"], strict=True))
    assert at[1.0] == pytest.approx(rows["draft_g2"]["alpha_exact"]["own"])
    assert len(set(at.values())) > 5


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_compiled_rows_share_the_fastest_baseline(tmp_path: Path, models: dict) -> None:
    code, ledger = run_bench(tmp_path, "--arms", "draft", "--gammas", "3", "--backends", "eager,compile")
    assert code == 0
    rows = {r["id"]: r for r in ledger["rows"]}
    assert list(rows) == ["plain", "draft_g3", "plain_compile", "draft_g3_compile"]
    fastest = min(("plain", "plain_compile"), key=lambda name: rows[name]["seconds"]["median"])
    assert {r["speedup"]["baseline"] for r in rows.values()} == {fastest}
    assert rows["draft_g3"]["histogram"] == rows["draft_g3_compile"]["histogram"]  # the same noise, the same rounds
    assert rows["plain"]["compile_seconds"] is None and rows["plain_compile"]["compile_seconds"] > 0
    assert 0 < rows["draft_g3_compile"]["c"] < 1 and rows["draft_g3_compile"]["checks_passed"]
    assert len(ledger["checks"]["sampling"]) == 4
    assert [(c["method"], c["backend"]) for c in ledger["checks"]["bigram"]] == [
        ("plain", "compile"), ("draft", "compile"),
    ]  # fmt: skip
    (drafts,) = ledger["checks"]["drafts"]
    assert (drafts["method"], drafts["backend"], drafts["passed"]) == ("draft", "compile", True)
    assert drafts["drafts"] > 100 and 0 < drafts["max_abs_diff"] < 1e-4


def test_without_a_compiler_the_rows_are_eager(
    tmp_path: Path, models: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    _, ledger = run_bench(tmp_path, "--arms", "draft", "--gammas", "1", "--backends", "compile")
    assert {r["backend"] for r in ledger["rows"]} == {"eager"}
    assert "no C++ compiler" in capsys.readouterr().err


def test_batches_are_arms_of_their_own(tmp_path: Path, models: dict) -> None:
    code, ledger = run_bench(tmp_path, "--arms", "draft", "--gammas", "2", "--batches", "1,3")
    assert code == 0
    rows = {r["id"]: r for r in ledger["rows"]}
    assert list(rows) == ["plain", "draft_g2", "plain_b3", "draft_g2_b3"]
    assert (
        rows["draft_g2_b3"]["speedup"]["baseline"] == "plain_b3" and rows["draft_g2"]["speedup"]["baseline"] == "plain"
    )
    for r in rows.values():
        assert r["ms_per_token"] == pytest.approx(1000 * r["seconds"]["median"] / (40 * r["batch"]))
        assert r["generations"] == 5 * r["batch"] and r["rounds"] >= 40 * r["generations"] / (r["gamma"] + 1)
    assert len(ledger["checks"]["sampling"]) == 2  # the same decoders, whatever the batch


def test_a_control_beside_the_target_shows_what_the_mtp_loss_does(tmp_path: Path, models: dict) -> None:
    record = {
        "role": "target", "max_steps": 7, "seed": 1, "val_fraction": 0.1, "seconds": 2.0, "mtp_weight": 0.3,
        "parameters": {"gpt": 100, "mtp": 10}, "corpus": {"name": "x", "sha256": "0" * 64},
        "curve": [{"step": 7, "val/loss_main": 1.5, "val/loss_mtp1": 1.6}],
    }  # fmt: skip
    alone = {"parameters": {"gpt": 100, "mtp": 0}, "curve": [{"step": 7, "val/loss_main": 1.75}]}
    control = {**record, "mtp_weight": 0.0, **alone}
    heads = {**record, "mtp_weight": 0.0}  # MTP modules trained later, on a frozen target
    found = {"main": record, "a_control": control, "shorter": {**control, "max_steps": 6}, "heads": heads}
    for name, content in found.items():
        (tmp_path / "runs" / name).mkdir(exist_ok=True)
        (tmp_path / "runs" / name / "metrics.json").write_text(json.dumps(content))
    _, ledger = run_bench(tmp_path, "--arms", "mtp", "--gammas", "1")
    assert ledger["checks"]["mtp_effect"] == {"with": 1.5, "without": 1.75, "difference": -0.25, "seeds": 1}
    assert ledger["models"]["control"]["path"].endswith("a_control") and ledger["models"]["mtp"]["val_loss"] == 1.6
    (tmp_path / "runs" / "a_control" / "metrics.json").unlink()
    _, ledger = run_bench(tmp_path, "--arms", "mtp", "--gammas", "1")
    assert ledger["models"]["control"] is None and ledger["checks"]["mtp_effect"] is None


def test_a_wrong_decoder_has_no_speedup(
    tmp_path: Path, models: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("specmtp.ledger.arms.Decoder", lambda *a: Decoder(*a[:3], accept_rule=inflated))
    code, ledger = run_bench(tmp_path, "--gammas", "1", "--draws", "50000")
    assert code == 1
    assert [r["id"] for r in ledger["rows"] if r["speedup"] is None] == ["draft_g1", "mtp_g1"]
    assert "not exact" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [("--temperature", "0"), ("--top-k", "3"), ("--dtype", "bf16", "--top-p", "0.8")])
def test_other_settings(tmp_path: Path, models: dict, settings: tuple) -> None:
    code, ledger = run_bench(tmp_path, "--gammas", "1,2", *settings)
    assert code == 0, ledger["verdict"]
    assert all(r["acceptance_matches_beta"] for r in ledger["rows"])
    assert len(ledger["checks"]["bigram"]) == (0 if "--temperature" in settings else 2)
