"""Where a ledger's figures come from: commit, command, machine and versions."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def provenance(device: torch.device, dtype: torch.dtype, threads: int) -> dict[str, Any]:
    """Plain data that names the machine and the code; the figures of two machines are never mistaken for each other."""
    cuda = device.type == "cuda"
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if cuda else processor(),
        "cores": os.cpu_count(),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "dtype": str(dtype).removeprefix("torch."),
        "threads": threads,
    }


def _commit() -> str | None:
    """The commit of the checkout this file lies in, with '+' where the tree has changes; None outside one."""
    commit, changes = _output("git", "rev-parse", "--short=12", "HEAD"), _output("git", "status", "--porcelain", "-uno")
    return None if commit is None or changes is None else commit + ("+" if changes else "")


def _output(*command: str) -> str | None:
    """What a command says, run beside this file; None where it fails."""
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """The processor's name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
