"""What a set of runs leaves for the record: python -m specmtp.report.results results/reference_cpu runs/main …"""

import csv
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from specmtp.ledger.files import write_json
from specmtp.pretrained import published_metrics
from specmtp.report.curves import draw_curves, draw_ladder
from specmtp.report.summary import NO_RUN
from specmtp.usage import command_line


def collect(folder: str, runs: list[str]) -> None:
    """Writes the runs' metrics as JSON, TensorBoard's scalars as one CSV, the first run's curves and ladder as PNG.

    Args:
        folder: where they go, beside a ledger.
        runs: folders of runs.

    Raises:
        ValueError: no run, or one without metrics.json.
    """
    if not runs:
        raise ValueError(NO_RUN)
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    for run in map(Path, runs):
        write_json(to / f"metrics_{run.name}.json", published_metrics(run))
    with (to / "scalars.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", "tag", "step", "value"])
        for run in map(Path, runs):
            table.writerows([run.name, *point] for point in scalars(run))
    draw_curves(runs[0], str(to / "acceptance.png"))
    if any(tag.startswith("ladder/") for tag, _, _ in scalars(Path(runs[0]))):
        draw_ladder(runs[0], str(to / "ladder.png"))


def scalars(run: Path) -> list[tuple[str, int, float]]:
    """(tag, step, value) of all scalars a run has logged, by tag and step; of two values at one step the later."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    tags = sorted(events.Tags()["scalars"])
    latest = {(tag, point.step): point.value for tag in tags for point in events.Scalars(tag)}
    return [(tag, step, float(f"{value:.7g}")) for (tag, step), value in sorted(latest.items())]


if __name__ == "__main__":
    command_line(collect)
