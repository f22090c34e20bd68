"""The command `linrnn export`, of a run, a published run and a saved model."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import linrnn
from linrnn import export as exports
from linrnn.cli import app as cli
from linrnn.export.published import publish
from linrnn.training import Settings, train
from tests.export.helpers import inputs, model, tensors
from tests.helpers import relative_error
from tests.training import own


def command(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli.app, ["export", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model(depth=1).save("mine")
    return Path("mine")


@pytest.mark.slow
def test_onnx_is_what_it_writes_without_options(saved: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    came = command(saved)
    assert came.exit_code == 0, came.output
    assert came.output.startswith("mine.onnx: ")
    ours = linrnn.load(saved)
    u = inputs(ours, 2, 30)
    outputs = onnxruntime.InferenceSession("mine.onnx").run(None, {"inputs": u.numpy()})
    assert relative_error(tensors(outputs)[0], ours(u)) < 1e-5


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ([], ("onnx", "mine.onnx", {"stream": False, "lengths": False})),
        (["--stream"], ("onnx", "mine.onnx", {"stream": True, "lengths": False})),
        (["--lengths", "--out", "x.onnx"], ("onnx", "x.onnx", {"stream": False, "lengths": True})),
        (["--to", "torch"], ("torch", "mine.pt2", {"stream": False, "lengths": False, "compiled": False})),
        (
            ["--to", "torch", "--stream", "--compiled"],
            ("torch", "mine.pt2", {"stream": True, "lengths": False, "compiled": True}),
        ),
        (["--to", "c"], ("c", "mine.c", {})),
    ],
    ids=["whole", "stream", "lengths", "torch", "compiled", "c"],
)
def test_the_options(saved: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], call: Any) -> None:
    calls = []
    for kind in ("onnx", "torch", "c"):

        def write(folder: Path, path: Path, kind: str = kind, **options: Any) -> None:
            calls.append((kind, str(path), options))
            path.write_text("")

        monkeypatch.setattr(exports, kind, write)
    assert command(saved, *arguments).exit_code == 0
    assert calls == [call]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "model.pt"], "--out: expected a name that ends in .onnx, got model.pt"),
        (["--compiled"], "--compiled: expected only with --to torch"),
        (["--to", "c", "--lengths"], "--lengths: expected only for whole sequences"),
        (["--stream", "--lengths"], "lengths: expected false for a stream"),
    ],
)
def test_mistakes(saved: Path, arguments: list[str], message: str) -> None:
    came = command(saved, *arguments)
    assert isinstance(came.exception, ValueError)
    assert message in str(came.exception)
    assert [path.name for path in Path().iterdir()] == ["mine"]


def test_a_published_run_takes_the_units_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = own.task("regression")
    run = train(own.recipe(task), "run", Settings(device="cpu", quiet=True), task=task)
    publish(run, "shared", "LRU")
    assert run.description.mean is not None
    for folder in ("run", "shared"):
        assert command(folder, "--to", "c").exit_code == 0
        found = re.search(r"linrnn_input_mean\[\d+\] = {([^}]*)}", Path(f"{folder}.c").read_text())
        assert found is not None
        mean = [float(number.strip().rstrip("f")) for number in found[1].split(",")]
        assert mean == pytest.approx(run.description.mean)
