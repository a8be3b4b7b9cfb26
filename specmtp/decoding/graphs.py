"""Functions as one graph of fixed shapes, through torch.compile, and calls of it without the host's ceremony."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import InductorError

from specmtp.nn.fused import TILED_ROWS

Options = dict[str, Any]

CPU_OPTIONS: Options = {
    "freezing": True,  # weights become constants, which the template of matrix products asks for
    "cpp_wrapper": True,  # kernels are called from C++, not one by one from Python
    "realize_opcount_threshold": 6,  # what is used twice is kept
    "max_autotune": True,  # matrix products from the compiler's own template: small ones beat the library's
    "max_autotune_gemm_backends": "CPP",
    "aot_inductor.allow_stack_allocation": True,  # small buffers cost nothing
}
"""What each is worth stands in LOG.md."""
LIBRARY_CPU_OPTIONS: Options = {"cpp_wrapper": True, "realize_opcount_threshold": 6}
"""Products by the matrix library: for many rows it is faster, and the compiler may have no template for a machine."""


class Compiled:
    """A function as one graph; weights are constants of it. Gradients must be off.

    A call through torch.compile costs 40 to 60 µs of guards, lookups and wrappers, as much as a decoding step.
    ``bound`` gives the bare call: the graph with the inputs that it would get, found out once.
    """

    def __init__(self, function: Callable[..., Any], device: torch.device, rows: int = 1) -> None:
        """
        Args:
            function: of tensors, or of what holds tensors.
            device: where they are.
            rows: of its largest matrix products.
        """
        self._function = function
        fast = [CPU_OPTIONS] if rows <= TILED_ROWS else []
        self._attempts: list[Options] = [*fast, LIBRARY_CPU_OPTIONS] if device.type == "cpu" else [{}]
        self._graph: Any = None
        self._dry = False
        self._last: Callable[[], Any] = lambda: None

    def bound(self, *args: Any, dry: bool = False) -> Callable[[], Any]:
        """The call with these arguments, to be made again and again; results are a list of the graph's tensors.

        The first time, it compiles.

        Args:
            args: tensors, or what holds tensors.
            dry: the function is not run; only for one that returns nothing.
        """
        self._dry = dry
        try:
            with torch.no_grad():
                self._through_dynamo(args)
        finally:
            self._dry = False
        return self._last

    def _through_dynamo(self, args: tuple[Any, ...]) -> None:
        while True:
            if self._graph is None:
                self._graph = torch.compile(fresh(self._function), fullgraph=True, dynamic=False, backend=self._backend)
            try:
                with inductor.patch(known(self._attempts[0])), without_onednn():
                    self._graph(*args)
                return
            except InductorError:
                if len(self._attempts) == 1:
                    raise
                self._graph, self._attempts = None, self._attempts[1:]

    def _backend(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        with torch.compiler.config.patch(cache_key_tag=digest(module)):  # type: ignore[attr-defined]
            return compile_fx(module, inputs, inner_compile=self._remembering)

    def _remembering(self, module: torch.fx.GraphModule, inputs: Sequence[Any], **rest: Any) -> Any:
        """The compiled graph, remembering what it was last called with."""
        graph: Any = compile_fx_inner(module, inputs, **rest)

        def call(inputs: list[Any]) -> Any:
            kept = tuple(inputs)
            self._last = lambda: graph(list(kept))
            return () if self._dry else graph(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def digest(module: nn.Module) -> str:
    """Hash of a module's weights.

    They are constants of its graph, packed where a template wants them so, but the compiler's cache on disk tells
    graphs apart by their shapes: it would give one network's graph to another.
    """
    found = hashlib.sha256()
    for weight in module.state_dict().values():
        found.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def empty_call(device: torch.device) -> Callable[[], Any]:
    """The bare call of a graph that does next to nothing: what calling one costs."""
    return Compiled(lambda x: x + 1, device).bound(torch.zeros(1, device=device))


@contextmanager
def without_onednn() -> Iterator[None]:
    """No weights packed by oneDNN: they would keep graphs out of the cache on disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a setting for Intel GPUs that is put back to what it was
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def cache_hits() -> int:
    """Graphs of this process that were read from the cache on disk."""
    return int(counters["inductor"]["fxgraph_cache_hit"])


def known(options: Options) -> Options:
    """The options that this torch has."""
    return {name: value for name, value in options.items() if name in _names()}


@cache  # listing them takes as long as ten decoding steps
def _names() -> frozenset[str]:
    return frozenset(torch._inductor.list_options())


def fresh(function: Any) -> Any:
    """The function with a code object of its own: the number of graphs kept for one is limited."""
    if not isinstance(function, FunctionType):  # a method
        return fresh(function.__func__).__get__(function.__self__)
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
