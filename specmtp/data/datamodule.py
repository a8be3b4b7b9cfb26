"""The DataModule: corpus, split by position, and loaders whose batches depend on (seed, step) alone."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from specmtp.data.corpus import Corpus, load_corpus
from specmtp.data.vocabulary import Vocabulary
from specmtp.data.windows import VALIDATION_BLOCK, num_starts, training_windows, validation_windows


class TextDataModule(LightningDataModule):
    """Windows of a text: random ones of the first part for training, all of the last part for validation.

    The global batch of an optimiser step is a function of (seed, step); ranks and micro-batches take their slices, so a
    resumed run, a run on two processes and an uninterrupted one see the same windows.
    """

    def __init__(
        self,
        corpus: str = "tinyshakespeare",
        path: str | None = None,
        block_size: int = 64,
        batch_size: int = 64,
        val_fraction: float = 0.1,
        seed: int = 1337,
    ) -> None:
        """
        Args:
            corpus: the text: tinyshakespeare or stdlib (the sources of the running Python's standard library).
            path: a UTF-8 text file to use in place of the corpus.
            block_size: characters a training window.
            batch_size: windows an optimiser step, over all ranks and micro-batches together.
            val_fraction: the part at the end of the text that is kept for validation.
            seed: what the training windows are drawn from.
        """
        super().__init__()
        for name, value in (("block_size", block_size), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"data.{name} must be at least 1, got {value}")
        if seed < 0:
            raise ValueError(f"seed_everything must not be negative, got {seed}")
        if not 0 < val_fraction < 1:
            raise ValueError(f"data.val_fraction must lie between 0 and 1, got {val_fraction}")
        self.corpus_name, self.path = corpus, path
        self.block_size, self.batch_size, self.val_fraction, self.seed = block_size, batch_size, val_fraction, seed

    @property
    def settings(self) -> dict[str, Any]:
        """What the batches depend on, as plain data."""
        names = ("block_size", "batch_size", "val_fraction", "seed")
        return {"text_sha256": self.corpus.sha256, **{name: getattr(self, name) for name in names}}

    @cached_property
    def corpus(self) -> Corpus:
        corpus = load_corpus(self.corpus_name, self.path)
        if not corpus.text:
            raise ValueError(f"the text {corpus.origin} is empty: need at least {self.block_size + 1} characters")
        return corpus

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Built from the whole text, so that no character of the validation part is unknown."""
        return Vocabulary.from_text(self.corpus.text)

    @property
    def symbols(self) -> str:
        return self.vocabulary.symbols

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """Training and validation ids, each [N]."""
        ids_N = self.vocabulary.encode(self.corpus.text)
        split = int(len(ids_N) * (1 - self.val_fraction))
        train_N, val_N = ids_N[:split], ids_N[split:]
        num_starts(len(train_N), self.block_size, "training text")
        num_starts(len(val_N), VALIDATION_BLOCK, "validation text")
        return train_N, val_N

    def setup(self, stage: str) -> None:
        _ = self.parts  # too short a text is told before anything is trained
        if self.batch_size % self._num_slices:
            raise ValueError(
                f"data.batch_size {self.batch_size} must be a multiple of processes × accumulate_grad_batches = "
                f"{self._num_slices}"
            )

    @property
    def _num_slices(self) -> int:
        """Slices of a global batch: one a process and micro-batch."""
        assert self.trainer is not None
        return self.trainer.world_size * self.trainer.accumulate_grad_batches

    def train_dataloader(self) -> DataLoader:
        assert self.trainer is not None
        num_batches = self.trainer.max_steps * self.trainer.accumulate_grad_batches
        return _Loader(_Batches(self._training_slices, num_batches), batch_size=None)

    def val_dataloader(self) -> DataLoader:
        assert self.trainer is not None
        windows = validation_windows(self.parts[1], VALIDATION_BLOCK)
        mine = windows[self.trainer.global_rank :: self.trainer.world_size].split(4 * self.batch_size)
        return _Loader(_Batches(lambda: iter(mine), len(mine)), batch_size=None)

    def _training_slices(self) -> Iterator[Tensor]:
        """This process's slices of the global batches, from the trainer's present step on."""
        trainer = self.trainer
        assert trainer is not None
        size = self.batch_size // self._num_slices
        for step in range(trainer.global_step, trainer.max_steps):
            batch_BW = training_windows(self.parts[0], self.block_size, self.batch_size, self.seed, step)
            for micro in range(trainer.accumulate_grad_batches):
                first = (micro * trainer.world_size + trainer.global_rank) * size
                yield batch_BW[first : first + size]


class _Batches(IterableDataset):
    """Ready batches from a generator; iterable, so that Lightning puts no sampler of its own over them."""

    def __init__(self, make: Callable[[], Iterator[Tensor]], num_batches: int) -> None:
        self.make, self.num_batches = make, num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Tensor]:
        return self.make()


class _Loader(DataLoader):
    """A loader with nothing to save: where to go on follows from the trainer's step."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass
