import json
import statistics

import numpy as np
import pytest
import torch

from linrnn.cores.rnn import RNN
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
    u, h = kernel.inputs(2.0), kernel.target_kernel()
    assert u.shape == (32, 100)
    expected = np.stack([np.convolve(x, array(h))[:100] for x in array(u)])
    assert relative_error(kernel.convolve(u, h), expected) < 1e-5


@pytest.mark.parametrize("sigma", ["linear", "tanh"])
def test_the_outputs_are_those_of_the_rnn(sigma: kernel.Sigma) -> None:
    parameters = kernel.initial(3, 5)
    parameters[3] = torch.randn(3, 1, 1)
    u = torch.randn(4, 100)
    came = kernel.outputs(sigma, parameters, u)
    for i in range(3):
        rnn = RNN(1, kernel.STATES, nonlinearity=sigma)
        rnn.load_state_dict({name: value[i] for name, value in zip("ABCD", parameters, strict=True)})
        assert relative_error(came[i], rnn(u.unsqueeze(-1))[0].squeeze(-1)) < 1e-4


def test_starts_have_glorots_variance_by_inputs_and_no_d() -> None:
    A, B, C, D = (array(parameter) for parameter in kernel.initial(10, 1))
    assert A.std() == pytest.approx(0.1, rel=0.02)
    assert B.std() == pytest.approx(1, rel=0.1)
    assert C.std() == pytest.approx(0.1, rel=0.1)
    assert not D.any()
    assert not np.array_equal(A[0], A[1])


def test_losses_are_relative_to_the_power_of_the_outputs_and_starts_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    u = kernel.inputs(2.0)
    y = kernel.convolve(u, kernel.target_kernel())
    parameters = kernel.initial(2, 1)
    parameters[2][0] = 0
    both = kernel.learn("tanh", parameters, u, y, 1e-3, 5)
    assert both.shape == (6, 2)
    assert float(both[0, 0]) == pytest.approx(1)
    alone = kernel.learn("tanh", [parameter[1:] for parameter in parameters], u, y, 1e-3, 5)
    assert relative_error(both[:, 1:], alone) < 1e-4


def test_areas_and_verdicts() -> None:
    assert kernel.area([1.0, 0.1, 0.01]) == pytest.approx(-1)
    assert kernel.area([0.0]) == pytest.approx(-9)
    curves: kernel.Curves = {"linear": [[0.1], [0.01]], "tanh": [[1.0], [1.0]]}
    mean, error = kernel.compare(curves)
    assert mean == pytest.approx(1.5)
    assert error == pytest.approx(statistics.stdev([1, 2]) / 2**0.5)
    assert kernel.verdict((1.5, 0.5)) == "linear"
    assert kernel.verdict((-1.5, 0.5)) == "tanh"
    assert kernel.verdict((1.0, 0.5)) == kernel.verdict((-0.2, 0.5)) == "tie"


def test_a_tie_is_no_loss() -> None:
    def holds(*differences: float) -> bool:
        cases = [(end, rate) for end in kernel.RANGES for rate in (1e-3, 3e-3)]
        compared = {case: (x, 0.1) for case, x in zip(cases, differences, strict=True)}
        curves: dict[tuple[float, float], kernel.Curves] = {c: {"linear": [[0.1]], "tanh": [[1.0]]} for c in cases}
        return kernel._findings(curves, compared)[0].holds

    assert holds(1, 0, 0, 1)
    assert not holds(1, 0, 0, -1)
    assert not holds(0, 0, 0, 0)


def test_quick_run() -> None:
    result = kernel.run(quick=True, seed=0, progress=silent)
    every, tuned = result.findings  # which of them hold depends on the starts: that they follow from the losses
    cases = result.numbers["cases"]
    log = [{sigma: np.log10(case["losses"][sigma]).mean(1) for sigma in ("linear", "tanh")} for case in cases]
    for case, of in zip(cases, log, strict=True):
        difference = of["tanh"] - of["linear"]
        expected = [difference.mean(), difference.std(ddof=1) / 3**0.5]
        np.testing.assert_allclose(case["tanh_less_linear"], expected, rtol=1e-4)
        for losses in case["losses"].values():
            assert all(min(each) < 0.5 * each[0] for each in losses)  # both learn
    verdicts = [kernel.verdict(case["tanh_less_linear"]) for case in cases]
    assert every.holds == ("tanh" not in verdicts and "linear" in verdicts)
    assert all(words in every.measured for words in ("up to 2", "up to 10", "at 0.001"))
    assert "lowest loss" in tuned.measured
    json.dumps(result.numbers, allow_nan=False)
