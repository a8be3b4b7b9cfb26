"""The models of a ledger as plain data: what they are made of, and what became of their training."""

from dataclasses import asdict
from pathlib import Path

from torch import nn

from specmtp.checkpoint import Checkpoint, read_metrics
from specmtp.data.corpus import file_sha256
from specmtp.ledger.models import Models
from specmtp.ledger.rows import Json
from specmtp.nn.mtp import MTPModule


def models_json(models: Models) -> Json:
    """All models of a ledger by name: target, its MTP modules, draft, control; None where there is none.

    Losses, curves and seconds come from the runs' metrics.json.
    """
    target, draft, control = models.target, models.draft, models.control
    size = target.net.num_parameters()
    return {
        "target": _model_json("target", target, size["gpt"], "main"),
        "mtp": _drafter_json(target) if size["mtp"] else None,
        "draft": _drafter_json(draft) if draft else None,
        "control": _control_json(control, target.step) if control else None,
        "named": {name: _drafter_json(checkpoint) for name, checkpoint in models.named.items()},
    }


def mtp_effect(found: Json) -> Json | None:
    """Validation loss of the target with the MTP loss and without it, after as many steps; None without a control.

    Args:
        found: as of ``models_json``.
    """
    with_mtp, without = (found[name]["val_loss"] if found[name] else None for name in ("target", "control"))
    if with_mtp is None or without is None:
        return None
    return {"with": with_mtp, "without": without, "difference": with_mtp - without, "seeds": 1}


def _model_json(role: str, checkpoint: Checkpoint, parameters: int, loss: str) -> Json:
    return {
        "role": role,
        "path": str(checkpoint.path),
        "sha256": checkpoint.sha256,
        "vocabulary": checkpoint.vocabulary.digest,
        "parameters": parameters,
        "weight_bytes": parameters * checkpoint.net.gpt.lm_head.weight.itemsize,
        "config": asdict(checkpoint.net.gpt.config),
        **_training_json(checkpoint.metrics, checkpoint.step, loss),
    }


def _drafter_json(checkpoint: Checkpoint) -> Json:
    """A draft model, or the MTP modules of a target."""
    size = checkpoint.net.num_parameters()
    if checkpoint.role == "draft":
        return _model_json("draft", checkpoint, size["gpt"], "main")
    return _model_json("mtp", checkpoint, size["mtp"], "mtp1") | _mtp_json(checkpoint)


def _mtp_json(target: Checkpoint) -> Json:
    """What MTP modules are made of: their own parts, all depths together, and those of the target that they share."""
    gpt, mtp = target.net.gpt, target.net.mtp
    modules = [module for module in mtp.modules_by_depth if isinstance(module, MTPModule)]
    blocks = [module.block for module in modules]
    parts: dict[tuple[str, bool], list[nn.Module]] = {
        ("embedding", False): [gpt.embed_tokens],
        ("norm_hidden", True): [module.hidden_norm for module in modules],
        ("norm_embedding", True): [module.embed_norm for module in modules],
        ("projection", True): [module.proj for module in modules],
        ("attention", True): [part for b in blocks for part in (b.input_layernorm, b.self_attn)],
        ("feed_forward", True): [part for b in blocks for part in (b.post_attention_layernorm, b.mlp)],
        ("final_norm", False): [gpt.norm],
        ("head", False): [gpt.lm_head],
    }
    return {
        "depth": mtp.depth,
        "shared": mtp.shared,
        "weight": target.metrics.get("mtp_weight"),
        "parts": [
            {"name": name, "own": own, "parameters": sum(w.numel() for part in found for w in part.parameters())}
            for (name, own), found in parts.items()
        ],
    }


def _control_json(run: Path, step: int) -> Json:
    metrics = read_metrics(run / "metrics.json")
    file = run / "checkpoints" / "last.ckpt"
    return {
        "role": "control",
        "path": str(run),
        "sha256": file_sha256(file) if file.is_file() else None,
        "vocabulary": None,
        "parameters": metrics["parameters"]["gpt"],
        **_training_json(metrics, step, "main"),
    }


def _training_json(metrics: Json, step: int, loss: str) -> Json:
    """Step, loss there, curve and seconds of a run."""
    points = [(p.get("step"), p.get(f"val/loss_{loss}")) for p in metrics.get("curve") or []]
    return {
        "step": step,
        "val_loss": dict(points).get(step),
        "curve": [{"step": at, "val_loss": value} for at, value in points if value is not None],
        "train_seconds": metrics.get("seconds"),
    }
