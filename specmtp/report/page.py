"""A ledger as one self-contained page: static parts and the ledger's JSON, which the page's own script reads."""

import json
from pathlib import Path

from specmtp.report.files import Json

PARTS = Path(__file__).with_name("page")
SCRIPTS = ("base", "verify", "accept", "gamma", "mtp", "results", "questions", "start")
"""In the order in which they need each other."""
NOT_IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Inside a script element no text of the ledger may look like markup; in JSON strings these mean the same."""


def page_html(ledger: Json) -> str:
    """The page.

    Raises:
        ValueError: the ledger holds a number that JSON does not know.
    """
    data = json.dumps(ledger, separators=(",", ":"), allow_nan=False)  # ASCII, so no line separators either
    for character, escaped in NOT_IN_SCRIPTS.items():
        data = data.replace(character, escaped)
    page = _read("template.html")
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    for place, content in (("STYLE", _read("style.css")), ("SCRIPT", script), ("LEDGER", data)):
        page = page.replace(f"/*{place}*/", content, 1)
    return page


def page_file(ledger: Path) -> Path:
    """Where a ledger's page stands: report.html beside ledger.json, other.html beside other.json."""
    return ledger.with_name("report.html" if ledger.stem == "ledger" else f"{ledger.stem}.html")


def _read(name: str) -> str:
    return (PARTS / name).read_text("utf-8")
