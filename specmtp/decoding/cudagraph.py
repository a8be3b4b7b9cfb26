"""A whole round as one CUDA graph: the compiled round, captured once and replayed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specmtp.decoding.compiled import CompiledDecoder, Places
from specmtp.decoding.state import State, copied, tensors

Replay = Callable[[], object]


class CudaGraphDecoder(CompiledDecoder):
    """A compiled decoder whose round is a CUDA graph, with places of its own to which every state is copied.

    A graph replays the same addresses, so caches and tape are this decoder's; states that it returns are copies.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As ``CompiledDecoder``."""
        super().__init__(*args, **kwargs)
        self.capture: Callable[[Replay], Replay] = capture
        self._captured: dict[bool, tuple[Places, Replay]] = {}

    def ready(self, state: State, end_B: Tensor) -> tuple[Places, Replay]:
        kind = torch.is_inference_mode_enabled()
        if kind not in self._captured:
            own: Places = copied(self._places(state, state.length_B))  # no row is active while it is captured
            self._captured[kind] = own, self.capture(self._bound(own))
        own, replay = self._captured[kind]
        overwrite(own, self._places(state, end_B))
        return own, replay

    def _left(self, places: Places) -> State:
        left: State = copied(places.state)
        return left


def capture(call: Replay) -> Replay:
    """The call as a CUDA graph; it is run a few times first, on a stream aside, as capturing asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def overwrite(places: Any, values: Any) -> None:
    """Copies all tensors of one structure into those of another."""
    for place, value in zip(tensors(places), tensors(values), strict=True):
        place.copy_(value)
