import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from linrnn.experiments import depth
from linrnn.model import Model
from linrnn.tasks.base import silent
from linrnn.training import InterruptedRun, Run, checkpoint, resume
from tests.helpers import array
from tests.training.helpers import QUIET, interrupt_at, last_checkpoint, load, tiny_world, train_tiny


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


def test_spectra_are_those_of_the_weights_and_survive_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_tiny(tmp_path / "whole")
    assert [record["step"] for record in whole.spectra()] == [0, 20, 40, 50]
    model = Model(whole.recipe.model.config(load()))
    checkpoint.restore_weights(last_checkpoint(whole), model)
    re, im = whole.spectra()[-1]["eigenvalues"][0]
    lam = array(model.blocks[0].core.eigenvalues())  # type: ignore[operator]
    np.testing.assert_allclose(np.array(re) + 1j * np.array(im), lam, atol=1e-6)
    interrupt_at(monkeypatch, 30)
    with pytest.raises(InterruptedRun):
        train_tiny(tmp_path / "stopped")
    monkeypatch.undo()
    stopped = Run.open(tmp_path / "stopped")
    stopped.log_spectrum(40, [])  # of a step that will be done again
    assert resume(stopped.folder, QUIET).spectra() == whole.spectra()


def test_frames(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run", "model.depth=2")
    result = depth.run_on(run.folder, progress=silent)
    assert len(result.frames) == 3
    assert result.findings[0].holds
    assert result.numbers["steps"] == [0, 20, 40, 50]
    json.dumps(result.numbers)


def test_a_run_without_spectra(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run", "training.steps=1")
    (run.folder / "spectrum.jsonl").unlink()
    with pytest.raises(ValueError, match=r"run: expected a run that recorded its eigenvalues"):
        depth.run_on(run.folder, progress=silent)
