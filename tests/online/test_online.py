"""Online learning: gradients against backpropagation through time."""

import pytest
import torch
import torch.nn.functional as F

import linrnn
from linrnn import online
from tests.helpers import relative_error


def _gradients(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def _layers() -> list[linrnn.LRU]:
    torch.manual_seed(0)
    kwargs = {"dtype": torch.float64}
    return [
        linrnn.LRU(3, 6, r_min=0.9, r_max=0.999, **kwargs),  # type: ignore[arg-type]
        linrnn.LRU(3, 6, r_min=0.9, parameterization="real_imag", normalize=False, **kwargs),  # type: ignore[arg-type]
        linrnn.S5(3, 6, **kwargs),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("layer", _layers(), ids=["stable_exp", "real_imag", "s5"])
@pytest.mark.parametrize("length", [1, 50])
def test_gradients_of_a_layer_are_exact(layer: linrnn.LRU, length: int) -> None:
    torch.manual_seed(1)
    u, target = torch.randn(2, 4, length, 3, dtype=torch.float64)
    layer.zero_grad()
    (F.mse_loss(layer(u)[0], target) * length).backward()
    expected = _gradients(layer)
    layer.zero_grad()
    learner = online.Learner(layer, batch=4)
    for k in range(length):
        learner.step(u[:, k], target[:, k])
    found = _gradients(layer)
    assert set(found) == set(expected)
    for name in expected:
        assert relative_error(found[name], expected[name]) < 1e-10, name


@pytest.mark.slow
def test_gradients_of_a_layer_are_exact_over_10_000_steps() -> None:
    torch.manual_seed(0)
    layer = linrnn.LRU(2, 16, r_min=0.99, r_max=0.9999, dtype=torch.float64)
    u, target = torch.randn(2, 1, 10_000, 2, dtype=torch.float64)
    (F.mse_loss(layer(u)[0], target) * 10_000).backward()
    expected = _gradients(layer)
    layer.zero_grad()
    learner = online.Learner(layer)
    for k in range(10_000):
        learner.step(u[:, k], target[:, k])
    for name, gradient in _gradients(layer).items():
        assert relative_error(gradient, expected[name]) < 1e-6, name


def _model(**options: object) -> linrnn.Model:
    torch.manual_seed(0)
    config = {"channels": 2, "classes": 3, "d_model": 8, "d_state": 6, "depth": 2, "norm": "layer", "pooling": "none"}
    return linrnn.Model(linrnn.ModelConfig(**{**config, **options})).double().eval()  # type: ignore[arg-type]


def test_in_a_deep_model_the_last_layer_is_exact_and_outputs_are_the_model_s() -> None:
    model = _model()
    u, target = torch.randn(1, 40, 2, dtype=torch.float64), torch.randint(3, (1, 40))
    outputs = model(u)
    (F.cross_entropy(outputs.flatten(0, 1), target.flatten()) * 40).backward()
    expected = _gradients(model)
    model.zero_grad()
    learner = online.Learner(model)
    for k in range(40):
        output, loss = learner.step(u[:, k], target[:, k])
        assert relative_error(output, outputs[:, k].detach()) < 1e-10
        assert loss is not None
    found = _gradients(model)
    for name in expected:
        if name.startswith(("blocks.1.core.", "blocks.1.mixing.", "head.")):
            assert relative_error(found[name], expected[name]) < 1e-9, name
    assert relative_error(found["blocks.0.core.nu_log"], expected["blocks.0.core.nu_log"]) > 1e-3  # approximated


def test_it_learns_a_delay_from_a_stream() -> None:
    torch.manual_seed(0)
    layer = linrnn.LRU(1, 32, r_min=0.5, r_max=0.99)
    learner = online.Learner(layer, torch.optim.Adam(layer.parameters(), lr=3e-3))
    u = torch.randn(4000)
    losses = []
    for k in range(5, 4000):
        loss = learner.step(u[k].view(1, 1), u[k - 5].view(1, 1)).loss
        assert loss is not None
        losses.append(float(loss))
    assert sum(losses[-500:]) / 500 < 0.1


def test_steps_without_a_target_keep_the_traces() -> None:
    layer = _layers()[0]
    u, target = torch.randn(1, 20, 3, dtype=torch.float64), torch.randn(1, 3, dtype=torch.float64)
    F.mse_loss(layer(u)[0][:, -1], target).backward()
    expected = _gradients(layer)
    layer.zero_grad()
    learner = online.Learner(layer)
    for k in range(19):
        assert learner.step(u[:, k]).loss is None
    learner.step(u[:, 19], target)
    for name, gradient in _gradients(layer).items():
        assert relative_error(gradient, expected[name]) < 1e-10, name
    learner.reset()
    assert not any(tensor.any() for traces in learner.traces for tensor in traces)


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"model: expected a Model or a Core, got Linear"):
        online.Learner(torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model: expected cores LRU or S5, whose recurrence is diagonal, got GRU"):
        online.Learner(linrnn.GRU(2, 3))
    with pytest.raises(ValueError, match="model: expected a causal core, got a bidirectional one"):
        online.Learner(linrnn.LRU(2, 3, bidirectional=True))
    with pytest.raises(
        ValueError, match="model: expected pooling='none' or 'last': an output at every step, got 'mean'"
    ):
        online.Learner(_model(pooling="mean"))
    with pytest.raises(TypeError, match=r"optimizer: expected an Optimizer or none, got 0.1"):
        online.Learner(linrnn.LRU(2, 3), 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"inputs: expected 2 streams \(batch = 2\), got \(3, 2\)"):
        online.Learner(linrnn.LRU(2, 3), batch=2).step(torch.zeros(3, 2))
