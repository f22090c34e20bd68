import json

import pytest
import torch

from linrnn.cores.equivalence import real_form
from linrnn.cores.lru import LRU
from linrnn.cores.rnn import RNN
from linrnn.paper.figures import realform
from linrnn.tasks.base import silent


@pytest.fixture(autouse=True)
def fixed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work on the machine must not decide."""
    monkeypatch.setattr(realform, "_speed", lambda *_: {realform.DIAGONAL: 1.0, realform.MATRIX: 3.0})


def test_the_claims_hold() -> None:
    result = realform.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 4
    json.dumps(result.numbers, allow_nan=False)


def test_times_are_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    ms = realform._speed(4, 10, 1)
    assert ms.keys() == {realform.DIAGONAL, realform.MATRIX}
    assert min(ms.values()) > 0


def test_slower_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realform, "_speed", lambda *_: {realform.DIAGONAL: 3.0, realform.MATRIX: 1.0})
    assert not realform.run(quick=True, seed=0, progress=silent).findings[-1].holds


def test_blocks_that_turn_the_other_way_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:

    def wrong(layer: LRU) -> RNN:
        rnn = real_form(layer)
        with torch.no_grad():
            rnn.A.copy_(rnn.A.T.clone())
        return rnn

    monkeypatch.setattr(realform, "real_form", wrong)
    result = realform.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [False, False, True, True]  # λ* for λ: the same pairs
