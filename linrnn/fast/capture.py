"""A function of tensors as one CUDA graph: no gaps between launches, and no Python between the kernels."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Captured:
    """The function, replayed. All calls take tensors of the shapes of the first call, and overwrite the last result.

    The function must read only its arguments and tensors that live as long as this object, and must be safe to repeat:
    it runs `rehearsals` times before the capture, so that kernels are compiled and libraries have their workspaces.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Tensor | None,
        rehearsals: int = 2,
        before_capture: Callable[[], Any] = lambda: None,
        pool: Any = None,
    ) -> None:
        self.function = function  # the graph reads these tensors
        self.arguments = [None if argument is None else argument.clone() for argument in arguments]
        device = next((argument.device for argument in arguments if argument is not None), None)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(rehearsals):
                    function(*self.arguments)
                before_capture()
                with torch.cuda.graph(self.graph, pool, stream):
                    self.result = function(*self.arguments)
            torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, *arguments: Tensor | None) -> Any:
        for own, given in zip(self.arguments, arguments, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self.graph.replay()
        return self.result
