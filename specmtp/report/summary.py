"""What runs of one length ended with, in one file: the ground of the tables that compare runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specmtp.ledger.files import write_json
from specmtp.ledger.provenance import processor
from specmtp.pretrained import published_metrics

Json = dict[str, Any]
NO_RUN = "no run was named: give the folders of runs, such as [runs/one,runs/two]"


def summarise(file: Path, runs: Sequence[str], row: Callable[[Path, Json], Json], table: Callable[[Json], str]) -> Json:
    """Prints, writes and returns a summary of runs that differ in what their rows name alone.

    Args:
        file: where it goes; folders are made.
        runs: folders of runs.
        row: what is kept of a run, from its folder and its record.
        table: of a summary, as Markdown; what it refuses is not written.

    Raises:
        ValueError: no run, one without metrics.json or a figure that is wanted, or runs of several lengths or texts.
    """
    if not runs:
        raise ValueError(NO_RUN)
    found = {Path(run): published_metrics(Path(run)) for run in runs}
    steps = sorted({metrics["step"] for metrics in found.values()})
    if len(steps) != 1:
        raise ValueError(f"runs of one length are wanted, got {', '.join(map(str, steps))} steps")
    corpora = {metrics["corpus"].get("sha256"): metrics["corpus"] for metrics in found.values()}
    if len(corpora) != 1:
        raise ValueError(f"runs of one text are wanted, got {', '.join(str(c['name']) for c in corpora.values())}")
    rows = []
    for run, metrics in found.items():
        try:
            rows.append(row(run, metrics))
        except KeyError as error:
            raise ValueError(f"{run} is no such run: its record has no {error.args[0]}") from error
    summary = {
        "device_name": processor(),
        "steps": steps[0],
        "corpus": next(iter(corpora.values())),
        "runs": rows,
    }
    print(table(summary))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, summary)
    return summary
