"""Functions as one graph of fixed shapes, through torch.compile, and calls of it without the host's ceremony."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch._inductor import config as inductor
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import InductorError

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
SAFE_CPU_OPTIONS: Options = {"cpp_wrapper": True, "realize_opcount_threshold": 6}
"""Where the compiler has no template for this machine or dtype."""


class Compiled:
    """A function as one graph; weights are constants of it. Gradients must be off.

    A call through torch.compile costs 40 to 60 µs of guards, lookups and wrappers, as much as a decoding step.
    ``bound`` gives the bare call: the graph with the inputs that it would get, found out once.
    """

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self._function, self._cpu = fresh(function), device.type == "cpu"
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
        if self._graph is not None:
            with inductor.patch(known(self._graph[1])):
                self._graph[0](*args)
            return
        attempts = [CPU_OPTIONS, SAFE_CPU_OPTIONS] if self._cpu else [{}]
        for options in attempts:
            graph: Any = torch.compile(fresh(self._function), fullgraph=True, dynamic=False, backend=self._backend)
            try:
                with inductor.patch(known(options)):
                    graph(*args)
            except InductorError:
                if options is attempts[-1]:
                    raise
                continue
            self._graph = graph, options
            return

    def _backend(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
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


def known(options: Options) -> Options:
    """The options that this torch has."""
    names = set(torch._inductor.list_options())
    return {name: value for name, value in options.items() if name in names}


def fresh(function: Any) -> Any:
    """The function with a code object of its own: the number of graphs kept for one is limited."""
    if not isinstance(function, FunctionType):  # a method
        return fresh(function.__func__).__get__(function.__self__)
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
