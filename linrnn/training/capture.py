"""Training steps and predictions in one CUDA graph each: no launch gaps, and no Python between the kernels."""

from collections.abc import Callable

import torch
from torch import Tensor

from linrnn.model import Model


class CapturedStep:
    """The same step, replayed from a graph. Its rehearsals leave weights, optimizer and generators as they were."""

    def __init__(
        self, advance: Callable[[Tensor], Tensor], model: Model, optimizer: torch.optim.Optimizer, batch_size: int
    ) -> None:
        self.advance = advance  # the graph reads the tensors behind it, which must live as long
        device = next(model.parameters()).device
        self.indices = torch.arange(batch_size, device=device)
        generators = torch.get_rng_state(), torch.cuda.get_rng_state(device)
        weights = {name: t.clone() for name, t in model.state_dict().items()}
        fresh = not optimizer.state
        moments = {p: {key: t.clone() for key, t in state.items()} for p, state in optimizer.state.items()}

        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                advance(self.indices)
            optimizer.zero_grad()
            with torch.cuda.graph(self.graph, stream=stream):
                self.loss = advance(self.indices)
        torch.cuda.current_stream(device).wait_stream(stream)

        model.load_state_dict(weights)
        for parameter, state in optimizer.state.items():
            for key, tensor in state.items():
                tensor.copy_(torch.zeros_like(tensor) if fresh else moments[parameter][key])
        torch.set_rng_state(generators[0])
        torch.cuda.set_rng_state(generators[1], device)

    def __call__(self, batch: Tensor) -> Tensor:
        self.indices.copy_(batch)
        self.graph.replay()
        return self.loss


class CapturedPrediction:
    """The same prediction, replayed from a graph, which is captured when the first batch comes; all have its shape."""

    def __init__(self, predict: Callable[[Tensor, Tensor | None], Tensor]) -> None:
        self.predict = predict
        self.graph: torch.cuda.CUDAGraph | None = None

    @torch.no_grad()
    def __call__(self, inputs: Tensor, lengths: Tensor | None) -> Tensor:
        if self.graph is None:
            self._capture(inputs, lengths)
        assert self.graph is not None
        self.inputs.copy_(inputs)
        if lengths is not None:
            assert self.lengths is not None
            self.lengths.copy_(lengths)
        self.graph.replay()
        return self.outputs

    def _capture(self, inputs: Tensor, lengths: Tensor | None) -> None:
        self.inputs, self.lengths = inputs.clone(), None if lengths is None else lengths.clone()
        self.graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(inputs.device)
        stream.wait_stream(torch.cuda.current_stream(inputs.device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.predict(self.inputs, self.lengths)
            with torch.cuda.graph(self.graph, stream=stream):
                self.outputs = self.predict(self.inputs, self.lengths)
        torch.cuda.current_stream(inputs.device).wait_stream(stream)
