import json
import math

import numpy as np
import pytest
import torch

from linrnn.paper.figures import impulse
from linrnn.tasks.base import silent


def test_states_are_powers_of_lambda() -> None:
    theta = torch.tensor([0.01, 1.0, 5.0], dtype=torch.float64)
    k = np.arange(impulse.LONG)[:, None]
    expected = np.exp((-impulse.NU + 1j * theta.numpy()) * k)
    np.testing.assert_allclose(impulse.respond(theta).numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("theta", [0.05, 1.0, 3.0, 6.2])
def test_oscillations_are_counted(theta: float) -> None:
    k = np.arange(1000)
    peaks = np.cos(theta * k)  # its spectrum has one peak, at the frequency that is heard
    turns = int(np.argmax(np.abs(np.fft.rfft(peaks))))
    assert float(impulse.oscillations(torch.from_numpy(peaks).view(-1, 1))) == pytest.approx(turns, abs=1)
    assert float(impulse.expected(torch.tensor(theta), 1000)) == pytest.approx(turns, abs=1)


def test_the_claims_hold() -> None:
    result = impulse.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 4
    json.dumps(result.numbers, allow_nan=False)
    wide, small = result.numbers["phases"].values()
    assert np.mean(wide["oscillations"]) == pytest.approx(impulse.LONG / 4, rel=0.3)  # θ to π uniformly, mirrored
    assert np.mean(small["oscillations"]) == pytest.approx(impulse.LONG / 200, rel=0.3)
    np.testing.assert_allclose(wide["last"], math.exp(-0.00005 * 16_383), rtol=1e-9)


def test_a_wrong_memory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = impulse.respond
    monkeypatch.setattr(impulse, "respond", lambda theta: right(theta) * 0.999)
    result = impulse.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True, False, True, True]
