"""Drafters and accept rules side by side, as Markdown tables."""

from typing import Any

from specmtp.decoding.rules import RULES, TOKEN
from specmtp.ledger.arms import PLAIN, method_name
from specmtp.ledger.cells import interval_text, number, speedup_text

Json = dict[str, Any]


def drafters_table(ledger: Json) -> str:
    """What every drafter takes, and what it gives with lossless rules: acceptance, tokens, its fastest row."""
    models = ledger["models"]
    found = {name: models[name] for name in ("draft", "mtp") if models[name]} | models.get("named", {})
    lines = [
        "| drafter | own parameters | trained, steps | seconds | weights + cache, kB "
        "| alpha_exact, validation / own text | most tokens / forward | fastest row |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    cached = [row for row in ledger["rows"] if row["window_rule"] == "sliding" and row["batch"] == 1]
    exact = [row for row in cached if row.get("lossless", True) and not row["id"].endswith("_greedy")]
    plain = {row["backend"]: row["cache_bytes"] for row in exact if row["method"] == PLAIN}
    for method in dict.fromkeys(row["method"] for row in exact if row["method"] != PLAIN):
        rows = [row for row in exact if row["method"] == method]
        model = found.get(method) or {"parameters": 0, "weight_bytes": 0, "step": None, "train_seconds": None}
        most = max(rows, key=lambda row: row["tokens_per_target_forward"])
        fastest = max(rows, key=lambda row: row["speedup"]["median"] if row["speedup"] else 0.0)
        memory = model["weight_bytes"] + fastest["cache_bytes"] - plain[fastest["backend"]]
        alpha = fastest["alpha_exact"]
        lines.append(
            f"| {method_name(method)} | {model['parameters']:,} | {_or_dash(model['step'])} "
            f"| {number(model['train_seconds'], 0)} | {memory / 1000:,.0f} "
            f"| {number(alpha['validation'], 3)} / {number(alpha['own'], 3)} "
            f"| {most['tokens_per_target_forward']:.2f} ({_setting(most)}) "
            f"| {_setting(fastest)}, {speedup_text(fastest)} |"
        )
    return "\n".join(lines)


def _setting(row: Json) -> str:
    rule = row.get("rule", TOKEN)
    return f"γ={row['gamma']}" + (f" {RULES[rule].title}" if rule != TOKEN else "")


def rules_table(ledger: Json) -> str:
    """Tokens a forward of every accept rule at the same states, and what it gains over token by token.

    Raises:
        ValueError: the ledger has one rule alone.
    """
    gains = ledger.get("rules") or []
    if not gains:
        raise ValueError(
            "the ledger has one accept rule: python bench.py --rules block,exact_match,typical adds others"
        )
    rules = list(dict.fromkeys(g["rule"] for g in gains))
    lines = [
        "| drafter | " + " | ".join(RULES[rule].title for rule in rules) + " |",
        "|---|" + "---:|" * len(rules),
    ]
    for method, gamma in dict.fromkeys((g["method"], g["gamma"]) for g in gains):
        own = {g["rule"]: g for g in gains if (g["method"], g["gamma"]) == (method, gamma)}
        texts = [
            f"{g['tokens_per_target_forward']:.3f}" + ("" if rule == rules[0] else f", {_gain(g)}")
            for rule, g in own.items()
        ]
        lines.append(f"| {method_name(method)} γ={gamma} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _gain(gain: Json) -> str:
    low, high = gain["gain_interval"]
    return ("+" if gain["gain"] > 0 else "") + interval_text(gain["gain"], low, high)


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
