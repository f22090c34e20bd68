"""Fewer states for a trained run: the model, the run that it becomes, and what is written down."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import linrnn
from linrnn.cores.reduction import reduce
from linrnn.training import Run, resume
from linrnn.training.shrink import RECORD, shrink, shrink_run
from tests.helpers import relative_error
from tests.training.helpers import QUIET, tiny_world, train_tiny


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("runs") / "tiny", "model.depth=2")


@pytest.mark.parametrize("core", ["lru", "s5"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_all_states_give_the_same_model(core: str, norm: str) -> None:
    torch.manual_seed(0)
    sizes = {"channels": 2, "classes": 3, "d_model": 6, "d_state": 8, "depth": 2}
    model = linrnn.Model(linrnn.ModelConfig(core=core, norm=norm, **sizes)).double().eval()  # type: ignore[arg-type]
    u = torch.randn(4, 40, 2, dtype=torch.float64)
    with torch.no_grad():
        assert relative_error(shrink(model, states=8).model(u), model(u)) < 1e-8
        smaller = shrink(model, states=3)
        assert smaller.model(u).shape == (4, 3)
        assert smaller.model.config.d_state == 3
        assert smaller.bounds[1] == reduce(model.blocks[1].core, 3).bound  # type: ignore[arg-type]
        for core_, bound in zip(model.blocks, smaller.bounds, strict=True):
            assert bound > 0, core_


@pytest.mark.parametrize("normalize", [True, "fixed", False])
def test_every_normalization(normalize: object) -> None:
    torch.manual_seed(0)
    options = {"normalize": normalize, "r_max": 0.9}
    config = linrnn.ModelConfig(channels=1, classes=1, d_model=4, d_state=5, depth=1, options=options)
    model = linrnn.Model(config).double().eval()
    u = torch.randn(2, 30, 1, dtype=torch.float64)
    assert relative_error(shrink(model, states=5).model(u).detach(), model(u).detach()) < 1e-8


def test_an_error_keeps_every_layer_below_it(trained: Run) -> None:
    smaller = shrink(trained.model(), error=0.3)
    assert smaller.model.config.d_state < 8
    assert all(bound <= 0.3 * gain for bound, gain in zip(smaller.bounds, smaller.gains, strict=True))


def test_a_shrunk_run_is_a_run(trained: Run, tmp_path: Path) -> None:
    made = shrink_run(trained, tmp_path / "small", states=4)
    record = json.loads((made.folder / RECORD).read_text())
    assert record["states"] == [8, 4]
    assert set(record["curve"]) == {"balanced", "energy"}
    assert record["curve"]["balanced"]["8"] == pytest.approx(record["metrics"]["before"]["validation"]["accuracy"])
    assert (made.folder / "shrink.png").stat().st_size > 10_000
    model = linrnn.load(made.folder)
    assert model.config.d_state == 4
    tokens = torch.randint(4, (3, 12))
    expected = shrink(trained.model(), states=4).model.eval()
    torch.testing.assert_close(model(tokens), expected(tokens))
    assert made.summary is not None
    assert made.summary["test"]["best"] == record["metrics"]["after"]["test"]["accuracy"]
    assert made.recipe.model.d_state == 4
    again = shrink_run(made, tmp_path / "smaller", states=2, picture=False)
    assert linrnn.load(again.folder).config.d_state == 2


def test_fine_tuning_goes_on_from_the_shrunk_weights(trained: Run, tmp_path: Path) -> None:
    made = shrink_run(trained, tmp_path / "tuned", states=2, finetune=20, picture=False)
    assert made.summary is None
    ended = resume(made.folder, QUIET)
    assert ended.summary is not None
    assert ended.summary["steps"] == 20
    assert ended.recipe.training.learning_rate == pytest.approx(0.002)
    losses = [record["loss"] for record in ended.metrics()]
    assert losses[0] < train_tiny(tmp_path / "new", "model.d_state=2", "model.depth=2").metrics()[0]["loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "states, error: expected one of the two, got neither"),
        ({"states": 2, "error": 0.1}, "states, error: expected one of the two, got both"),
        ({"states": 9}, "states: expected at most d_state = 8, got 9"),
        ({"error": 2.0}, "error: expected a part of the layer's gain, between 0 and 1, got 2.0"),
        ({"error": 0.1, "by": "energy"}, "by: expected 'balanced' with an error, got 'energy'"),
    ],
)
def test_errors_leave_no_folder(trained: Run, tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shrink_run(trained, tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_other_cores_are_refused() -> None:
    model = linrnn.Model(linrnn.ModelConfig(channels=1, classes=1, d_model=2, d_state=2, depth=1, core="gru"))
    with pytest.raises(TypeError, match="model: expected one with layers of cores LRU or S5, got 'gru'"):
        shrink(model, states=1)
