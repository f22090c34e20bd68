"""Published weights: what they keep of a run, and that every command reads them as a run."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import linrnn
from linrnn import recipes
from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.export import published
from linrnn.export.published import open_run, publish
from linrnn.training import Run, Settings, train
from linrnn.training.overrides import override
from tests.helpers import relative_error
from tests.training import own
from tests.training.helpers import QUIET, load, tiny_world, train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with tiny_world():
        yield train_tiny(tmp_path_factory.mktemp("run") / "run", "training.ema=.9", "training.steps=40")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "_width", 200)


def command(*arguments: str | Path) -> Any:
    with tiny_world():
        return CliRunner().invoke(cli.app, list(map(str, arguments)))


def test_what_is_kept(run: Run, tmp_path: Path) -> None:
    """Half the size; eigenvalues, γ and vectors to the bit, and matrices to eight bits, in single precision."""
    made = publish(run, tmp_path / "tiny", "an LRU")
    assert {path.name for path in made.folder.iterdir()} == {
        "config.json", "model.safetensors", "card.json", "README.md"
    }  # fmt: skip
    own_weights, theirs = run.model().state_dict(), linrnn.load(made.folder).state_dict()
    exact = {name for name, tensor in own_weights.items() if torch.equal(tensor, theirs[name])}
    rounded = {name for name, tensor in own_weights.items() if tensor.dim() > 1}
    assert rounded == {
        "encoder.weight",
        "head.weight",
        *(f"blocks.0.{n}" for n in ("core.B", "core.C", "mixing.weight")),
    }
    assert exact == own_weights.keys() - rounded
    for name in rounded:
        assert theirs[name].dtype == torch.float32
        assert 0 < relative_error(theirs[name], own_weights[name]) < 2**-8


@pytest.mark.parametrize("core", ["diag-real-imag", "s4d", "rnn-tanh", "gru"])
def test_every_core(core: str, tmp_path: Path) -> None:
    """A matrix that eigenvalues are made of is not rounded."""
    with tiny_world():
        run = train_tiny(tmp_path / "run", f"model.core={core}", "training.steps=3")
        made = publish(run, tmp_path / "made", core)
        task = load()
    recurrent = {
        f"blocks.0.core.{name}"
        for name, p in run.model().blocks[0].core.named_parameters()
        if any(p.shape == q.shape for q in run.model().recurrent_parameters()) and name in ("lam", "a_re_log", "a_im")
    }
    theirs, ours = made.model(), run.model()
    for name in recurrent:
        assert torch.equal(theirs.state_dict()[name], ours.state_dict()[name])
    inputs, lengths = torch.from_numpy(task.test.inputs).int(), torch.from_numpy(task.test.lengths)
    assert relative_error(theirs(inputs, lengths=lengths), ours(inputs, lengths=lengths)) < 0.02


def test_commands_take_it_as_a_run(run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    place = tmp_path / "pretrained" / "tiny"
    came = command("publish", copy, "--out", place)
    assert came.exit_code == 0, came.output
    shutil.rmtree(copy)
    said = command("eval", place, "--device", "cpu").stdout
    accuracy = float(re.match(r"([\d.]+)% of 45 test examples right", said)[1])  # type: ignore[index]
    assert accuracy == pytest.approx(100 * (run.summary or {})["test"]["best"], abs=3)
    assert "of 7 test examples" in command("eval", place, "--examples", "7").stdout
    assert command("eval", place, "--weights", "last").exit_code != 0
    assert command("stream", place).exit_code == 0
    card = json.loads((place / "card.json").read_text())
    assert card["recipe"] == run.recipe.to_dict()
    assert card["about"]["data"] is None
    read = (place / "README.md").read_text()
    for words in ("tiny", "averaged" if "averaged" in card["title"] else "lru", "step 40", "built in"):
        assert words in read
    with tiny_world():
        assert open_run(place).task().name == "tiny"


def test_data_of_ones_own(tmp_path: Path) -> None:
    """Predictions need nothing else."""
    task = own.task("regression")
    made = publish(train(own.recipe(task), tmp_path / "run", QUIET, task=task), tmp_path / "made", "LRU")
    assert made.description.kind == "regression"
    assert made.metric.name == "rmse"
    inputs = torch.from_numpy(task.test.inputs)[:2].float()
    assert made.model()(inputs).shape == (2, task.classes)


def test_what_cannot_be_published(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left behind, and nothing is overwritten."""
    stopped = shutil.copytree(run.folder, tmp_path / "stopped")
    (stopped / "summary.json").unlink()
    with pytest.raises(ValueError, match="run: expected a run that has ended"):
        publish(Run.open(stopped), tmp_path / "made", "LRU")
    with pytest.raises(ValueError, match="which holds something"):
        publish(run, run.folder, "LRU")
    monkeypatch.setattr(published, "LIMIT", 100)
    with pytest.raises(ValueError, match="run: expected weights of at most 100 bytes"):
        publish(run, tmp_path / "made", "LRU")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("card", ["{", "{}", '{"format": "another 1"}'])
def test_a_damaged_card(run: Run, tmp_path: Path, card: str) -> None:
    made = publish(run, tmp_path / "made", "LRU")
    (made.folder / "card.json").write_text(card)
    came = command("eval", made.folder)
    assert isinstance(came.exception, ValueError)
    assert "card.json" in str(came.exception)


@pytest.mark.slow
def test_recall(tmp_path: Path) -> None:
    """The built-in task: the published weights are as right as the run's, to .2 points."""
    recipe = override(recipes.get("recall"), ["training.steps=300"])
    run = train(recipe, tmp_path / "run", Settings(device="cpu", quiet=True))
    publish(run, tmp_path / "recall", "LRU")
    said = CliRunner().invoke(cli.app, ["eval", str(tmp_path / "recall"), "--device", "cpu"]).stdout
    accuracy = float(said.partition("%")[0])
    assert accuracy > 90
    assert accuracy == pytest.approx(100 * (run.summary or {})["test"]["best"], abs=0.2)
