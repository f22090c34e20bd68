import json

import numpy as np
import pytest
import torch
from scipy.signal import cont2discrete

from linrnn import spectrum
from linrnn.experiments import discretization
from linrnn.experiments.discretization import zoh
from linrnn.tasks.base import silent
from tests.helpers import array


@pytest.mark.parametrize("init", ["lin", "inv", "legs"])
@pytest.mark.parametrize("delta", [0.001, 0.1])
def test_zoh_is_scipys(init: spectrum.S4DInit, delta: float) -> None:
    a = spectrum.s4d(5, init)
    lam, b = (array(x) for x in zoh(a, torch.tensor(delta, dtype=torch.float64)))
    system = np.diag(array(a)), np.ones((5, 1)), np.eye(5), np.zeros((5, 1))
    A, B, *_ = cont2discrete(system, delta, "zoh")
    np.testing.assert_allclose(lam, np.diag(A), rtol=1e-9)
    np.testing.assert_allclose(b, B[:, 0], rtol=1e-9)


def test_legs_is_hippo_plus_its_low_rank_part() -> None:
    """From the definition of HiPPO-LegS, by a general eigenvalue solver."""
    n = np.arange(16)
    root = np.sqrt(2 * n + 1)
    A = -np.tril(np.outer(root, root), -1) - np.diag(n + 1.0)
    expected = np.linalg.eigvals(A + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5)))
    above = sorted(expected[expected.imag > 0], key=lambda x: -float(x.imag))
    np.testing.assert_allclose(array(spectrum.s4d(8, "legs")), above, rtol=1e-9)


def test_inv_approximates_legs() -> None:
    inv, legs = (array(spectrum.s4d(64, init)).imag for init in ("inv", "legs"))
    np.testing.assert_allclose(inv[:4], legs[:4], rtol=0.06)


def test_the_quick_run() -> None:
    result = discretization.run(quick=True, seed=0, progress=silent)
    assert [finding.measured for finding in result.findings if not finding.holds] == []
    json.dumps(result.numbers)
