"""Models, inputs and states for the tests of exports."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import linrnn

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def model(core: str = "lru", *, options: dict[str, Any] | None = None, **config: Any) -> linrnn.Model:
    """In eval mode, after batches that moved the running statistics of its norms."""
    shape: dict[str, Any] = {"classes": 3, "d_model": 6, "d_state": 4, "depth": 2, "core": core} | config
    if not {"channels", "vocabulary"} & set(config):
        shape["channels"] = 2
    made = linrnn.Model(linrnn.ModelConfig(options=options or {}, **shape))
    with torch.no_grad():
        for _ in range(3):
            made(inputs(made, 4, 20))
        for block in made.blocks:
            torch.nn.init.normal_(block.mixing.bias)
            torch.nn.init.normal_(block.norm.bias)
        if made.last_norm is not None:
            torch.nn.init.normal_(made.last_norm.bias)
    return made.eval()


def inputs(of: linrnn.Model | linrnn.Core, batch: int, length: int) -> Tensor:
    if isinstance(of, linrnn.Core):
        return torch.randn(batch, length, of.d_model)
    config = of.config
    sizes = (batch, 2, length) if config.documents == 2 else (batch, length)
    tokens = torch.randint(config.vocabulary or 1, sizes)
    if config.channels is None:
        return tokens
    numbers = torch.randn(*sizes, config.channels)
    return numbers if config.vocabulary is None else torch.cat([numbers, tokens.unsqueeze(-1)], dim=-1)


def streamed(step: Step, u: Tensor, size: int) -> Tensor:
    """The outputs of all steps, (batch, length, ...), from the zero state."""
    state, outputs = torch.zeros(len(u), size), []
    for u_k in u.unbind(1):
        output, state = step(u_k.contiguous(), state)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


@torch.no_grad()
def expected(of: linrnn.Model | linrnn.Core, u: Tensor) -> Tensor:
    """What the steps should give: the outputs of all beginnings of the sequence."""
    whole: Tensor
    if isinstance(of, linrnn.Core):
        whole, _ = of(u)
        return whole
    if of.config.pooling == "none":
        whole = of(u)
        return whole
    return torch.stack([of(u[:, : k + 1]) for k in range(u.shape[1])], dim=1)


def tensors(arrays: list[Any]) -> list[Tensor]:
    return [torch.from_numpy(np.asarray(array)) for array in arrays]
