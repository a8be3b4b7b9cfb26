"""Checkpoints that are whole or not there."""

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the file, then renames.

    Lightning's own write takes its way through the system's temporary folder, and is a copy over the last good file
    where that folder lies on another file system.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """
        Raises:
            ValueError: the file cannot be written; what stood there still stands.
        """
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        file = Path(path)
        temporary = file.with_name(f".{file.name}.tmp")  # one name: what a killed run leaves is written over
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as stream:
                stream.write(buffer.getbuffer())
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ValueError(
                f"{file} could not be written ({error.strerror}); checkpoints written before are whole"
            ) from error
