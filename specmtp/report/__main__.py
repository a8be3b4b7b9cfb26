"""Rebuilds the page of a ledger: python -m specmtp.report ledger.json"""

from pathlib import Path

from specmtp.ledger.files import check_writable, write_text
from specmtp.report.files import read_ledger
from specmtp.report.page import page_file, page_html
from specmtp.usage import command_line


def build_page(ledger: str, output: str | None = None) -> None:
    """Writes the page: report.html of ledger.json.

    Args:
        ledger: a ledger.json.
        output: where to; beside the ledger unless told.

    Raises:
        ValueError: there is no such file, or it is no ledger, or output cannot be written.
    """
    file = Path(output) if output else page_file(Path(ledger))
    check_writable(file)
    write_text(file, page_html(read_ledger(ledger)))
    print(file)


if __name__ == "__main__":
    command_line(build_page)
