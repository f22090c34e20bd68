"""torch.func and forward mode through layers: against loops, PyTorch's ordinary gradients and finite differences."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.utils._pytree import tree_map

from linrnn.cores import CORES, Core
from tests.helpers import relative_error

H, N, BATCH, LENGTH = 2, 3, 3, 6
Tensors = dict[str, Tensor]
KINDS: dict[str, Tensors] = {
    "": {},
    "lengths": {"lengths": torch.tensor([6, 0, 4])},
    "resets": {"resets": torch.tensor([[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0], [0] * 6]).bool()},
}
CASES = [
    pytest.param(name, bidirectional, kind, id=f"{name}-{'bidirectional' if bidirectional else 'causal'}-{kind}")
    for name in ("lru", "s5", "s4d", "s4")
    for bidirectional, kind in ((False, ""), (False, "lengths"), (False, "resets"), (True, ""))
    if (name, kind) != ("s4", "resets")
]


class Layer:
    """One with numbers to run on, as functions of its parameters."""

    def __init__(self, name: str, bidirectional: bool, kind: str) -> None:
        cls: Any = CORES[name]
        self.core: Core = cls(H, N, bidirectional=bidirectional, dtype=torch.float64)
        self.parameters = {key: value.detach() for key, value in self.core.named_parameters()}
        self.direction = {key: torch.randn_like(value) for key, value in self.parameters.items()}
        self.u = torch.randn(BATCH, LENGTH, H, dtype=torch.float64)
        self.options = KINDS[kind]

    def run(self, parameters: Tensors, u: Tensor, options: Tensors) -> Tensor:
        """All that it gives, in one row."""
        y, state = functional_call(self.core, parameters, (u,), options)
        return torch.cat([part.flatten() for part in (y, state) if part is not None])

    def loss(self, parameters: Tensors, u: Tensor, options: Tensors) -> Tensor:
        return self.run(parameters, u, options).pow(3).sum()

    def gradients(self, parameters: Tensors, u: Tensor, options: Tensors) -> Tensors:
        """By ordinary autograd."""
        learned = {key: value.clone().requires_grad_() for key, value in parameters.items()}
        return dict(
            zip(learned, torch.autograd.grad(self.loss(learned, u, options), list(learned.values())), strict=True)
        )

    def difference(self, function: Any) -> Any:
        """The derivative of a function of the parameters in the direction."""
        after, before = (
            function(
                {key: value + h * self.direction[key] for key, value in self.parameters.items()}, self.u, self.options
            )
            for h in (1e-6, -1e-6)
        )
        return tree_map(lambda a, b: (a - b) / 2e-6, after, before)

    def ensemble(self) -> Tensors:
        return {key: torch.stack([value, value + 0.1 * self.direction[key]]) for key, value in self.parameters.items()}


def assert_same(came: Any, truth: Any, tolerance: float) -> None:
    def compare(a: Tensor, b: Tensor) -> None:
        assert relative_error(a, b) < tolerance

    tree_map(compare, came, truth)


@pytest.mark.parametrize(("name", "bidirectional", "kind"), CASES)
def test_tangents(name: str, bidirectional: bool, kind: str) -> None:
    """Of outputs, in both ways to ask for them, and of gradients."""
    layer = Layer(name, bidirectional, kind)
    truth = layer.difference(layer.run)
    primals, tangents = (layer.parameters,), (layer.direction,)
    assert_same(jvp(lambda x: layer.run(x, layer.u, layer.options), primals, tangents)[1], truth, 1e-6)
    with forward_ad.dual_level():
        duals = {key: forward_ad.make_dual(value, layer.direction[key]) for key, value in layer.parameters.items()}
        assert_same(forward_ad.unpack_dual(layer.run(duals, layer.u, layer.options)).tangent, truth, 1e-6)
    products = jvp(lambda x: grad(layer.loss)(x, layer.u, layer.options), primals, tangents)[1]
    assert_same(products, layer.difference(layer.gradients), 1e-6)


@pytest.mark.parametrize(("name", "bidirectional", "kind"), CASES)
def test_gradients_of_samples_and_ensembles(name: str, bidirectional: bool, kind: str) -> None:
    layer = Layer(name, bidirectional, kind)
    samples = [
        (layer.u[i : i + 1], {key: value[i : i + 1] for key, value in layer.options.items()}) for i in range(BATCH)
    ]
    together = layer.u.unsqueeze(1), {key: value.unsqueeze(1) for key, value in layer.options.items()}
    came = vmap(grad(layer.loss), (None, 0, 0))(layer.parameters, *together)
    loop = [layer.gradients(layer.parameters, *sample) for sample in samples]
    assert_same(came, {key: torch.stack([each[key] for each in loop]) for key in came}, 1e-10)

    ensemble = layer.ensemble()
    came = vmap(grad(layer.loss), (0, None, None))(ensemble, layer.u, layer.options)
    loop = [
        layer.gradients({key: value[i] for key, value in ensemble.items()}, layer.u, layer.options) for i in range(2)
    ]
    assert_same(came, {key: torch.stack([each[key] for each in loop]) for key in came}, 1e-10)
