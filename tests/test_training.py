"""Training: exact resume, callbacks that training cannot notice, honest axes, processes that agree."""

import copy
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL_DRAFT
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from training_run import a_module, fit, scalars, text_file, weights

from callbacks import MetricsFile, MTPAcceptance, NGramAcceptance, SampleTrace, SpeculativeAcceptance
from callbacks.acceptance import marked_text
from callbacks.decoding_mode import decoding_mode
from callbacks.keep_last import KeepLast, RunCheckpoint
from specmtp.checkpoint import load, pack
from specmtp.data.datamodule import TextDataModule
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.drafters import DraftModel
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import noise_stream
from specmtp.decoding.sampling import Sampler
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MultiTokenGPT

ROOT = Path(__file__).parent.parent


class Losses(Callback):
    """Every training loss."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *rest: Any) -> None:
        self.values.append(float(outputs["loss"]))


class StopAfter(Callback):
    """Saves and stops after a step, as a kill would; the schedule still aims at max_steps."""

    def __init__(self, step: int, file: Path) -> None:
        self.step, self.file = step, file

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.file)
            trainer.should_stop = True


def a_draft(folder: Path) -> Path:
    """An untrained draft checkpoint of the small text's vocabulary."""
    symbols = TextDataModule(path=str(text_file(folder))).symbols
    net = MultiTokenGPT(GPTConfig(**{**SMALL_DRAFT.__dict__, "vocab_size": len(symbols)}))
    file = folder / "runs" / "draft" / "checkpoints" / "last.ckpt"
    file.parent.mkdir(parents=True, exist_ok=True)
    state = {f"net.{k}": v for k, v in net.state_dict().items()}
    torch.save({"specmtp": pack(net, "draft", Vocabulary(symbols)), "state_dict": state, "global_step": 0}, file)
    return file


def decoding_callbacks(**changes: int) -> list[Callback]:
    few = {"num_prompts": 2, "num_rounds": 3, **changes}
    return [
        SpeculativeAcceptance([1, 2], **few),  # type: ignore[arg-type]
        MTPAcceptance([1, 3], **few),  # type: ignore[arg-type]
        NGramAcceptance([2], **few),  # type: ignore[arg-type]
        SampleTrace(num_rounds=4),
    ]


def test_training_cannot_notice_the_callbacks(tmp_path: Path) -> None:
    """Same seed, dropout on: losses and weights are equal bit for bit, whatever is decoded and sanity-checked."""
    results = []
    for i, (callbacks, sanity) in enumerate(
        [([], 0), (decoding_callbacks(), 0), (decoding_callbacks(num_prompts=5), 2), ([], 2)]
    ):
        folder = tmp_path / str(i)
        a_draft(tmp_path / str(i))
        losses = Losses()
        module = fit(folder, [losses, *callbacks], max_steps=40, num_sanity_val_steps=sanity)
        results.append((losses.values, weights(module)))
        assert len(losses.values) == 40 and len(set(losses.values)) == 40
    for values, parameters in results[1:]:
        assert values == results[0][0]
        assert all(torch.equal(a, b) for a, b in zip(parameters, results[0][1], strict=True))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_resumed_training_is_the_straight_training(tmp_path: Path, accumulate: int) -> None:
    settings: dict[str, Any] = {"accumulate_grad_batches": accumulate, "val_check_interval": 2 * accumulate}
    straight, rates = Losses(), []
    whole = fit(tmp_path / "a", [straight], **settings)
    first, second = Losses(), Losses()
    fit(tmp_path / "b", [first, StopAfter(5, tmp_path / "half.ckpt")], **settings)
    resumed = fit(tmp_path / "b", [second], ckpt=tmp_path / "half.ckpt", **settings)
    assert first.values + second.values == straight.values
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    for folder in ("a", "b"):
        rates.append(dict(scalars(tmp_path / folder)["train/lr"]))
    assert rates[0] == rates[1] and len(rates[0]) == 10


class Signal(Callback):
    """Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", [3, 4, 5, 8])
def test_interrupted_training_misses_no_validation(tmp_path: Path, step: int, before: bool) -> None:
    """Validations are due after 5 and 10; Ctrl-C before, at, and after one, in a step and behind it."""
    whole = fit(tmp_path / "a", [])
    keep = KeepLast(tmp_path / "b")
    last = RunCheckpoint(tmp_path / "b", "last", save_on_train_epoch_end=False, enable_version_counter=False)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(SystemExit):
        order = [Signal(step), keep] if before else [keep, Signal(step)]
        fit(tmp_path / "b", [*order, last], enable_checkpointing=True)
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
        signal.signal(number, handler)  # Lightning leaves Ctrl-C ignored on its way out
    assert keep.signal == signal.SIGINT
    assert load(keep.file).step == (step if before or step == 5 else step + 1)
    resumed = fit(tmp_path / "b", [], ckpt=keep.file)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    assert sorted(scalars(tmp_path / "b")["val/loss_main"]) == scalars(tmp_path / "a")["val/loss_main"]


def test_micro_batches_are_slices_of_the_global_batch(tmp_path: Path) -> None:
    whole = fit(tmp_path / "a", [], dropout=0.0)
    sliced = fit(tmp_path / "b", [], dropout=0.0, accumulate_grad_batches=2, val_check_interval=10)
    for a, b in zip(weights(whole), weights(sliced), strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)
    with pytest.raises(ValueError, match="multiple of processes × accumulate_grad_batches = 3"):
        fit(tmp_path / "c", [], accumulate_grad_batches=3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_tag_counts_optimiser_steps(tmp_path: Path, accumulate: int) -> None:
    a_draft(tmp_path)
    file = tmp_path / "twenty.ckpt"
    settings: dict[str, Any] = {"accumulate_grad_batches": accumulate, "val_check_interval": 10 * accumulate}
    settings["num_sanity_val_steps"] = 2
    fit(tmp_path, [*decoding_callbacks(), ModelCheckpoint(tmp_path, "twenty")], max_steps=20,
        enable_checkpointing=True, **settings)  # fmt: skip
    first = scalars(tmp_path)
    fit(tmp_path, decoding_callbacks(), max_steps=40, ckpt=file, **settings)
    points = scalars(tmp_path)
    for gamma, name in ((1, "draft"), (2, "draft"), (1, "mtp"), (3, "mtp")):
        tag = f"decode/{name}_g{gamma}/acceptance_rate"
        assert [s for s, _ in first[tag]] == [10, 20]
        assert [s for s, _ in points[tag]] == [10, 20, 30, 40]
        assert all(0 <= v <= 1 for _, v in points[tag])
    for tag in ("val/loss_main", "val/loss_mtp1", "val/perplexity", "val/bits_per_character"):
        assert [s for s, _ in points[tag]] == [10, 20, 30, 40]
    assert [s for s, _ in points["train/loss"]] == list(range(1, 41))
    total = dict(points["train/loss"])[7]
    main, mtp = dict(points["train/loss_main"])[7], dict(points["train/loss_mtp1"])[7]
    assert total == pytest.approx(main + 0.3 * mtp, abs=1e-5)


@pytest.mark.parametrize(
    "batches, interval, max_steps, wanted",
    [(24, 100, 200, [100, 200]), (1, 10, 20, [10, 20]), (1.0, 1, 3, [1, 2, 3])],
)
def test_validation_counts_batches_not_epochs(
    tmp_path: Path, batches: float, interval: int, max_steps: int, wanted: list[int]
) -> None:
    fit(tmp_path, [], max_steps=max_steps, val_check_interval=interval, limit_train_batches=batches)
    assert [s for s, _ in scalars(tmp_path)["val/loss_main"]] == wanted


def test_validation_loss_is_the_mean_over_the_whole_split(tmp_path: Path) -> None:
    module = fit(tmp_path, [], max_steps=5)
    ids = TextDataModule(path=str(text_file(tmp_path)), block_size=16).parts[1]
    module.net.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 64):
            window = ids[start : start + 65]
            logits = module.net(window[None, :-1])[0][0]
            total += float(torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum"))
            count += len(window) - 1
    assert count == len(ids) - 1
    assert scalars(tmp_path)["val/loss_main"][-1][1] == pytest.approx(total / count, abs=1e-5)


def test_sanity_check_decodes_nothing(tmp_path: Path) -> None:
    class Spy(MTPAcceptance):
        calls = 0

        def _decode(self, *args: Any) -> Any:
            Spy.calls += 1
            return super()._decode(*args)

    fit(tmp_path, [Spy([1], num_prompts=1, num_rounds=1)], max_steps=4, num_sanity_val_steps=2)
    assert Spy.calls == 0
    assert not [tag for tag in scalars(tmp_path) if tag.startswith(("decode/", "val/"))]


class FakeTrainer:
    class precision_plugin:  # noqa: N801
        @staticmethod
        def forward_context() -> Any:
            return torch.autocast("cpu", enabled=False)


@pytest.mark.parametrize("fails", [False, True])
def test_modes_are_restored(fails: bool) -> None:
    net, draft = a_module("abcd", dropout=0.5).net.train(), a_module("abcd").net.eval()
    net.gpt.layers[0].mlp.eval()
    before = [[m.training for m in n.modules()] for n in (net, draft)]
    texts = []
    try:
        with decoding_mode(FakeTrainer(), net, draft):  # type: ignore[arg-type]
            for _ in range(2):
                decoder = Decoder(net.gpt, DraftModel(draft.gpt, 2), Sampler(0))
                texts.append(decoder.generate([[0, 1]], 20).tokens)
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert texts[0] == texts[1]  # dropout .5 is off
    assert before == [[m.training for m in n.modules()] for n in (net, draft)]
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_inference_mode_first_does_not_break_training() -> None:
    def gradients(validate_first: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = a_module("abcd", dropout=0.0)
        if validate_first:
            with decoding_mode(FakeTrainer(), module.net):  # type: ignore[arg-type]
                module.net(torch.zeros(1, 16, dtype=torch.long))
                Decoder(module.net.gpt, DraftModel(module.net.gpt, 2)).generate([[0]], 40, seed=0)
        ids = torch.randint(4, (2, 17), generator=torch.Generator().manual_seed(0))
        sum(total for total, _ in module.losses(ids).values()).backward()
        return [p.grad for p in module.net.parameters() if p.grad is not None]

    assert all(torch.equal(a, b) for a, b in zip(gradients(False), gradients(True), strict=True))


def test_frozen_draft_is_not_trained_and_not_saved(tmp_path: Path) -> None:
    file = a_draft(tmp_path)
    before = copy.deepcopy(load(file).net.state_dict())
    callback = SpeculativeAcceptance([1], num_prompts=1, num_rounds=2)
    fit(tmp_path, [callback, StopAfter(6, tmp_path / "a.ckpt")], max_steps=6)
    assert callback._net is not None and not any(p.requires_grad for p in callback._net.parameters())
    assert all(torch.equal(v, load(file).net.state_dict()[k]) for k, v in before.items())
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)  # plain data through and through
    assert all(key.startswith("net.") or key.startswith("val_losses.") for key in saved["state_dict"])
    assert load(tmp_path / "a.ckpt").role == "target"


def test_without_a_draft_it_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        fit(tmp_path, [SpeculativeAcceptance([1])], max_steps=10)
    said = [r for r in caplog.records if "no draft checkpoint" in r.getMessage()]
    assert len(said) == 1
    assert not [tag for tag in scalars(tmp_path) if "draft" in tag]


def test_control_without_mtp_has_no_mtp_curves(tmp_path: Path) -> None:
    module = fit(tmp_path, decoding_callbacks(), depth=0)
    assert not list(module.net.mtp.parameters())
    assert not [tag for tag in scalars(tmp_path) if "mtp" in tag and tag != "train/mtp_weight"]


def test_run_leaves_metrics_and_samples(tmp_path: Path) -> None:
    fit(tmp_path, [MetricsFile(), *decoding_callbacks()], max_steps=10)
    metrics = json.loads((tmp_path / "runs" / "run" / "metrics.json").read_text())
    assert [point["step"] for point in metrics["curve"]] == [5, 10]
    assert metrics["final"] == metrics["curve"][-1] and metrics["seconds"] > 0
    assert 0 <= metrics["final"]["decode/mtp_g1/acceptance_rate"] <= 1
    assert metrics["parameters"]["mtp"] > 0 and len(metrics["corpus"]["sha256"]) == 64
    sample = (tmp_path / "runs" / "run" / "samples" / "step_000010.txt").read_text().splitlines()
    assert len(sample[1]) == len(sample[2]) and set(sample[2]) <= set("^x.")


def test_marks_stand_under_their_symbols() -> None:
    lines = marked_text("ab\nc", ["sampled", "accepted", "resampled", "accepted"]).splitlines()[1:]
    assert lines == ["ab⏎", ".^x", "c", "^"]


def test_callback_options() -> None:
    for wrong in ({"gammas": [0]}, {"num_prompts": 0}, {"num_rounds": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least 1, got 0"):
            MTPAcceptance(**wrong)
    with pytest.raises(ValueError, match="temperature"):
        MTPAcceptance(temperature=-1)
    with pytest.raises(ValueError, match="MTPAcceptance: gammas must name at least one"):
        MTPAcceptance([])
    with pytest.raises(ValueError, match="MTPAcceptance: rule must be one of token, block, exact_match, typical"):
        MTPAcceptance(rule="blocks")


def test_other_accept_rules_have_curves_of_their_own(tmp_path: Path) -> None:
    few = {"num_prompts": 8, "num_rounds": 8}
    fit(tmp_path, [MTPAcceptance([3], rule=rule, **few) for rule in ("token", "exact_match")], max_steps=5)  # type: ignore[arg-type]
    found = {tag: values[-1][1] for tag, values in scalars(tmp_path).items()}
    token, exact = (found[f"decode/mtp_g3{name}/tokens_per_target_forward"] for name in ("", "_exact_match"))
    assert 1 <= exact < token
    assert found["counts/mtp_g3_exact_match/rounds"] == 64 and "ladder/mtp/4_acceptance_rate" in found


def test_depth_must_fit_the_block(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mtp_depth must be below block_size .*; got 16 and block_size 16"):
        fit(tmp_path, [], depth=16)


def test_two_processes_train_and_decode_as_one(tmp_path: Path) -> None:
    """DDP on gloo: same validation loss as one process; acceptance pooled over both ranks' rounds; no deadlock."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys; from pathlib import Path; import torch\n"
        "torch.set_num_threads(1)\n"
        "from training_run import fit\n"
        "from callbacks import MTPAcceptance, SampleTrace\n"
        "callbacks = [MTPAcceptance([1], num_prompts=3, num_rounds=4), SampleTrace(num_rounds=4)]\n"
        "fit(Path(sys.argv[1]), callbacks, dropout=0.0, devices=2, strategy='ddp')\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    text_file(tmp_path)
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    two = scalars(tmp_path)
    fit(tmp_path / "one", [], dropout=0.0)
    one = scalars(tmp_path / "one")
    assert len(two["val/loss_main"]) == 2
    for tag in ("val/loss_main", "val/loss_mtp1"):
        assert [v for _, v in two[tag]] == pytest.approx([v for _, v in one[tag]], abs=1e-4)
    assert [v for _, v in two["counts/mtp_g1/rounds"]] == [24.0, 24.0]


def test_the_ladder_stands_at_every_validation(tmp_path: Path) -> None:
    fit(tmp_path, [MTPAcceptance([1, 2], num_prompts=4, num_rounds=8)])
    found = scalars(tmp_path)
    rungs = [tag for tag in found if tag.startswith("ladder/mtp/")]
    assert len(rungs) == 5 and all([step for step, _ in found[tag]] == [5, 10] for tag in rungs)
    assert all(0 <= value <= 1 for tag in rungs[:-1] for _, value in found[tag])
    assert found["ladder/mtp/4_acceptance_rate"] == found["decode/mtp_g1/acceptance_rate"]


def test_one_page_shows_the_ladder_and_finds_every_rung(tmp_path: Path) -> None:
    fit(tmp_path, [MTPAcceptance([1], num_prompts=4, num_rounds=8)])
    events = EventAccumulator(str(tmp_path / "runs" / "run"))
    events.Reload()
    layout = layout_pb2.Layout.FromString(events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    by_rung, by_drafter = layout.category
    wanted = {tag for tag in events.Tags()["scalars"] if tag.startswith("ladder/")}
    found = [
        {tag for tag in wanted for pattern in chart.multiline.tag if re.search(pattern, tag)} for chart in by_rung.chart
    ]
    assert [len(tags) for tags in found] == [1] * 5 and set.union(*found) == wanted
    assert [chart.title for chart in by_drafter.chart] == ["draft", "mtp"]


def test_final_figures_stand_beside_the_hyper_parameters(tmp_path: Path) -> None:
    fit(tmp_path, [MetricsFile()])
    events = EventAccumulator(str(tmp_path / "runs" / "run"))
    events.Reload()
    assert len(events.PluginTagToContent("hparams")) == 3
    final = events.Scalars("final/val/loss_main")
    assert [(e.step, e.value) for e in final] == [(10, events.Scalars("val/loss_main")[-1].value)]


def test_callbacks_decode_under_the_trainers_precision(tmp_path: Path) -> None:
    """bf16-mixed: keys, values and cache in bf16, probabilities and weights in float32, before and after."""
    seen: list[tuple[torch.dtype, ...]] = []

    class Watching(MTPAcceptance):
        def log_trace(self, trainer: Trainer, pl_module: Any, drafter: Any, trace: Any) -> None:
            super().log_trace(trainer, pl_module, drafter, trace)
            with decoding_mode(trainer, pl_module.net):
                decoder = Decoder(pl_module.net.gpt, drafter, Sampler())
                state, _ = decoder.prefill([[1, 2, 3]])
                noise = next(noise_stream(0, 1, drafter.gamma))
                _, played = decoder.play(state, noise, torch.ones(1, dtype=torch.bool))
            seen.append((state.cache.keys[0].dtype, played.p_BNV.dtype, played.proposal.q_BGV.dtype))

    module = fit(tmp_path, [Watching([1], num_prompts=2, num_rounds=4)], precision="bf16-mixed")
    assert seen == [(torch.bfloat16, torch.float32, torch.float32)] * 2
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert 0 <= scalars(tmp_path)["decode/mtp_g1/acceptance_rate"][-1][1] <= 1
