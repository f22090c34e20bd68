import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from linrnn.model import Model
from linrnn.paper.figures import depth
from linrnn.tasks.base import silent
from linrnn.training import InterruptedRun, Run, checkpoint, resume
from tests.helpers import array
from tests.training.helpers import QUIET, RECIPE, interrupt_at, last_checkpoint, load, tiny_world, train_tiny


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
    lam = model.blocks[0].core.eigenvalues()
    assert lam is not None
    np.testing.assert_allclose(np.array(re) + 1j * np.array(im), array(lam), atol=1e-6)
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


BLOCKS = np.array([[0.5, -0.9j, 0.0], [0.99j, 0.1, -0.2]])  # at the start
LATER = np.array([[0.4, 0.95, 0.0], [-0.99, 0.3, -0.2j]])  # turned, some longer and some shorter
WIDEST = np.array([[0.5, 0.6, 0.7], [0.8, 0.999, 0.1]])


def record(folder: Path, *spectra: np.ndarray[Any, Any]) -> Path:
    """A run that recorded these eigenvalues, (blocks, N) each, at steps 0, 10, 20, ..., and nothing at another one."""
    run = Run.create(folder, RECIPE)
    for i, blocks in enumerate(spectra):
        run.log_spectrum(10 * i, np.stack([blocks.real, blocks.imag], axis=1).tolist())
    run.log_spectrum(5, [])  # as by a core without eigenvalues
    return run.folder


def dots(figure: Figure, axis: int) -> list[np.ndarray[Any, Any]]:
    """The points of a plot, of the start and of now."""
    return [np.asarray(points.get_offsets()) for points in figure.axes[axis].collections]


def title(figure: Figure) -> str:
    return figure.get_suptitle()


def test_the_numbers_are_those_of_all_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "FRAMES", 2)  # the first and the last
    result = depth.run_on(record(tmp_path / "run", BLOCKS, WIDEST, LATER), progress=silent)
    assert result.numbers["steps"] == [0, 10, 20]
    np.testing.assert_allclose(result.numbers["largest_radius"], [[0.9, 0.99], [0.7, 0.999], [0.95, 0.99]])
    np.testing.assert_allclose(result.numbers["mean_change_of_radius"], [(0.1 + 0.05) / 3, 0.2 / 3])
    assert "3 evaluations is 0.9990000" in result.findings[0].measured
    assert [title(figure) for figure in (*result.frames, result.figure)] == [
        "Eigenvalues of tiny, lru: step 0",
        "Eigenvalues of tiny, lru: step 20",
    ]


def test_the_picture_has_the_start_and_the_end_of_each_block(tmp_path: Path) -> None:
    result = depth.run_on(record(tmp_path / "run", BLOCKS, LATER), progress=silent)
    for block in range(2):
        for lam, plane, memory in zip(
            (BLOCKS[block], LATER[block]), dots(result.figure, block), dots(result.figure, 2 + block), strict=True
        ):
            np.testing.assert_allclose(plane, np.stack([lam.real, lam.imag], axis=1))
            seen = lam[lam != 0]  # 0 remembers nothing
            np.testing.assert_allclose(memory[:, 0], np.angle(seen) / np.pi, atol=1e-12)
            np.testing.assert_allclose(memory[:, 1], -1 / np.log(np.abs(seen)))
        assert result.figure.axes[block].get_title() == f"block {block + 1}"


@pytest.mark.parametrize(("radius", "holds"), [(0.9999999, True), (1.0, False), (1.5, False)])
def test_an_eigenvalue_outside_the_disk_at_any_time(radius: float, holds: bool, tmp_path: Path) -> None:
    wide = np.where(WIDEST == 0.999, radius, WIDEST)
    result = depth.run_on(record(tmp_path / "run", BLOCKS, wide, LATER), progress=silent)
    assert result.findings[0].holds is holds
    assert len(dots(result.frames[1], 3)[1]) == (3 if holds else 2)  # what grows has no memory to draw


def test_a_run_without_spectra(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run", "training.steps=1")
    (run.folder / "spectrum.jsonl").unlink()
    with pytest.raises(ValueError, match=r"run: expected a run that recorded its eigenvalues"):
        depth.run_on(run.folder, progress=silent)
