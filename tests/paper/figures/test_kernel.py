import json

import numpy as np
import pytest
import torch

from linrnn.paper.figures import kernel
from linrnn.tasks.base import silent
from tests.helpers import array, relative_error


def test_the_kernel_is_the_papers() -> None:
    h = array(kernel.target_kernel())
    assert h.shape == (100,)
    assert h[0] == pytest.approx(0.1)
    assert h[10] == pytest.approx(0.1 * np.exp(-0.15) * np.cos(0.4) ** 2, rel=1e-5)
    assert 65 < 50 + h[50:].argmax() < 80  # the bump that the paper points at


def test_convolution_is_numpys() -> None:
    torch.manual_seed(0)
    u, h = kernel.inputs(), kernel.target_kernel()
    assert u.shape == (32, 100)
    expected = np.stack([np.convolve(x, array(h))[:100] for x in array(u)])
    assert relative_error(kernel.convolve(u, h), expected) < 1e-5


def test_the_linear_shortcut_is_the_rnn() -> None:
    rnn = kernel.initial("linear", 3)
    u = torch.randn(4, 100)
    assert relative_error(kernel.outputs(rnn, u), rnn(u.unsqueeze(-1))[0].squeeze(-1)) < 1e-4


def test_both_start_from_the_same_glorot_parameters() -> None:
    linear, tanh = kernel.initial("linear", 1), kernel.initial("tanh", 1)
    for a, b in zip(linear.parameters(), tanh.parameters(), strict=True):
        assert torch.equal(a, b)
    assert array(linear.A).std() == pytest.approx(0.1, rel=0.05)
    for vector in (linear.B, linear.C):
        assert array(vector).std() == pytest.approx((2 / 101) ** 0.5, rel=0.25)


def test_iterations_are_those_until_the_loss_is_small() -> None:
    assert kernel.until_converged([1.0, 0.5, kernel.CONVERGED / 2, 1.0]) == 2
    assert kernel.until_converged([1.0, 0.5]) == 2


def test_losses_are_relative_to_the_power_of_the_outputs() -> None:
    torch.manual_seed(0)
    u = kernel.inputs()
    y = kernel.convolve(u, kernel.target_kernel())
    rnn = kernel.initial("tanh", 1)
    with torch.no_grad():
        rnn.C.zero_()
        rnn.D.zero_()
    assert kernel.learn(rnn, u, y, 1e-3, 0) == [pytest.approx(1)]


def test_quick_run() -> None:
    result = kernel.run(quick=True, seed=0, progress=silent)
    losses = {sigma: np.array(result.numbers["losses"][sigma]) for sigma in ("linear", "tanh")}  # (rates, 1, steps + 1)
    small = {sigma: x[:, 0] < kernel.CONVERGED for sigma, x in losses.items()}
    times = {sigma: np.where(x.any(1), x.argmax(1), x.shape[1]) for sigma, x in small.items()}
    every, tuned = result.findings  # which of them hold depends on the initialization: that they follow from the losses
    assert every.holds == bool((times["linear"] < times["tanh"]).all())
    assert tuned.holds == (losses["linear"].min() < losses["tanh"].min())
    for x in losses.values():
        assert (x.min(-1) < 0.1 * x[..., 0]).all()  # both learn
    json.dumps(result.numbers, allow_nan=False)
