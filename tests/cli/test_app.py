"""The command line: what it prints, what it says to mistakes, and how it exits."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from typer.testing import CliRunner

from linrnn import recipes
from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.model import Model
from linrnn.paper import presets
from linrnn.training import Run, checkpoint
from tests.training.helpers import interrupt_at, load, run_command, tiny_world

COMMANDS = (
    "train", "eval", "publish", "predict", "generate", "sweep", "runs", "compare", "stream", "recipes", "figure",
    "table", "shrink", "export",
)  # fmt: skip
SMALL = ("--set", "training.steps=6", "--set", "training.eval_every=3", "--device", "cpu")


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and messages are not broken into lines."""
    monkeypatch.setattr(console.out, "_width", 200)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def run(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "first"
    result = CliRunner().invoke(cli.app, ["train", "tiny", "--quiet", "--out", str(folder), *SMALL])
    assert result.exit_code == 0, result.output
    return Run.open(folder)


def linrnn(*arguments: str | Path) -> str:
    """What a command prints."""
    result = CliRunner().invoke(cli.app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def failure(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """The exit code and the message of `python -m linrnn`, run in this process."""
    with patch.object(sys, "argv", ["linrnn", *map(str, arguments)]), pytest.raises(SystemExit) as exit_:
        runpy.run_module("linrnn", run_name="__main__")
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    assert said.out == ""
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example(command: str) -> None:
    said = linrnn(command, "--help")
    assert re.search(r"Examples?\b", said)
    assert f"linrnn {command}" in said


def test_train_lists_all_cores_and_names_the_folder_after_the_one_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = linrnn("train", "--help")
    assert all(re.search(rf"\b{name}\b", said) for name in presets.names())
    monkeypatch.chdir(tmp_path)
    linrnn("train", "tiny", "--core", "diag-ring", "--quiet", *SMALL)
    recipe = Run.open(tmp_path / "runs" / "tiny-diag-ring").recipe
    assert (recipe.model.core, recipe.model.options["normalize"]) == ("lru", False)


def test_recipes() -> None:
    said = linrnn("recipes")
    entries = [recipes.get(name) for name in recipes.names()]
    words = set(re.split(r"[\s,]+", said))
    assert {recipe.task for recipe in entries} <= words
    rows = {line.split()[0]: set(line.split()[1:]) for line in said.splitlines() if line.strip()}
    for name in ("d_model", "d_state"):
        assert rows[name] == {str(getattr(recipe.model, name)) for recipe in entries}
    for name in ("steps", "batch_size"):
        assert rows[name] == {str(getattr(recipe.training, name)) for recipe in entries}
    assert "0.9999*" in said  # the ring of ListOps is not the paper's
    assert "16*" in said
    assert said.count("*") == 4
    assert "* listops: the paper has model.options.r_max 0.99," in said
    assert "scifar-grey (as scifar)" in said
    assert "training.ema" in said.partition("Not set in any:")[2]


def test_one_recipe_is_explained_field_by_field() -> None:
    said = " ".join(linrnn("recipes", "listops").split())
    assert "max_phase 0.3142* the initial phases are between 0 and `max_phase`. The paper: 6.283." in said
    assert "clip none the largest norm of the gradient" in said
    fields = {*vars(recipes.get("listops").model), *vars(recipes.get("listops").training)} - {"options"}
    assert all(re.search(rf"\b{field} \S+ [a-z`H]", said) for field in fields - {"d_state"}), said
    assert "steps 50000* " in " ".join(linrnn("recipes", "listops", "--fast").split())
    assert re.search(r"steps +60000\* +50000\* ", linrnn("recipes", "--fast"))


MISTAKES = [
    pytest.param(["train", "recal"], "did you mean 'recall'?", id="unknown-task"),
    pytest.param(["train", "--core", "lur"], "did you mean 'lru'?", id="unknown-core"),
    pytest.param(["train", "--core", "diag-rng"], "did you mean 'diag-ring'?", id="unknown-preset"),
    pytest.param(["train", "--set", "model.d_stat=3"], "did you mean 'model.d_state'?", id="unknown-field"),
    pytest.param(
        ["train", "--set", "training.steps=many"], "training.steps: expected an integer, got 'many'", id="type"
    ),
    pytest.param(["train", "--set", "training.steps=0"], "steps: expected at least 1, got 0", id="value"),
    pytest.param(["train", "--set", "training.steps"], "got no '='", id="no-equals"),
    pytest.param(["train", "--seed", "-1"], "seed: expected from 0", id="seed"),
    pytest.param(["train", "--device", "abacus"], "device: expected cpu", id="device"),
    pytest.param(["train", "--out", "{here}/full"], "out: expected a new or empty folder", id="folder-that-holds"),
    pytest.param(["train", "--out", "{here}/full/file"], "out: expected a new or empty folder", id="file-for-a-folder"),
    pytest.param(["train", "--out", "{here}/full/file/run"], "full/file is a file", id="unwritable-folder"),
    pytest.param(["train", "--resume", "{here}/none"], "expected the folder of a run", id="resume-nothing"),
    pytest.param(
        ["train", "tiny", "--resume", "{here}/none"], "--resume: expected no other choices", id="resume-and-task"
    ),
    pytest.param(
        ["train", "--seed", "0", "--resume", "{here}/none"], "--resume: expected no other choices", id="resume-and-seed"
    ),
    pytest.param(
        ["train", "--set", "training.steps=9", "--resume", "{here}/none"],
        "--resume: expected no other choices",
        id="resume-and-set",
    ),
    pytest.param(["eval", "{here}/none"], "expected the folder of a run", id="eval-nothing"),
    pytest.param(["stream", "{here}/full"], "expected the folder of a run", id="stream-nothing"),
    pytest.param(["runs", "{here}/none"], "folder: expected a folder with runs", id="runs-nothing"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """One line on stderr, exit code 2, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    code, said = failure(capfd, *(argument.format(here=tmp_path) for argument in arguments))
    assert code == 2
    assert message in said
    assert said.startswith("linrnn: ")
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]
    assert (tmp_path / "full" / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["gpu", "cpu", "numpy"],
)
def test_out_of_memory(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception) -> None:
    monkeypatch.setattr("linrnn.training.train", Mock(side_effect=error))
    code, said = failure(capfd, "train", "--out", "nowhere")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("linrnn: out of memory: try a smaller training.batch_size")


@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("can't allocate memory")])
def test_a_traceback_when_asked_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setenv("LINRNN_TRACEBACK", "1")
    monkeypatch.setattr("linrnn.training.train", Mock(side_effect=error))
    monkeypatch.setattr(sys, "argv", ["linrnn", "train", "--out", "nowhere"])
    with pytest.raises(type(error)):
        cli.main()


def test_a_bug_is_no_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linrnn.training.train", Mock(side_effect=RuntimeError("a bug")))
    monkeypatch.setattr(sys, "argv", ["linrnn", "train", "--out", "nowhere"])
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--sed", "1"], ["eval"], ["eval", "x", "--split", "tset"]])
def test_usage(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, said = failure(capfd, *arguments)
    assert code == 2
    assert "Usage: " in said


def test_a_real_process(tmp_path: Path) -> None:
    came = run_command("train", "--set", "training.stesp=1", "--out", tmp_path / "run", module="linrnn")
    assert came.returncode == 2
    assert came.stderr.strip() == (
        "linrnn: training.stesp: expected a field of the recipe, got none; did you mean 'training.steps'?"
    )
    assert came.stdout == ""
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changes = ("model.options.parameterization=real_imag", "training.learning_rate=1e30", "training.warmup=0")
    arguments = [word for change in changes for word in ("--set", change)]
    code, said = failure(capfd, "train", "tiny", "--quiet", "--out", tmp_path / "run", *SMALL, *arguments)
    assert code == 1
    assert "so training stopped" in said


def test_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Before the first evaluation there are no best weights yet; the last can be used, and the run goes on."""
    folder = tmp_path / "run"
    interrupt_at(monkeypatch, 2)
    code, said = failure(capfd, "train", "tiny", "--quiet", "--out", folder, *SMALL)
    monkeypatch.undo()
    assert code == 130
    assert f"linrnn train --resume {folder}" in said
    monkeypatch.setattr(console.out, "_width", 200)
    assert "0 of 6" in linrnn("runs", tmp_path)
    code, said = failure(capfd, "eval", folder)
    assert code == 2
    assert "weights: expected 'last'" in said
    assert "last weights, after step 2" in linrnn("eval", folder, "--weights", "last")
    assert linrnn("train", "--resume", folder, "--quiet", "--device", "cpu") == ""
    assert Run.open(folder).summary is not None


def test_train_shows_a_summary(run: Run) -> None:
    """A run that has ended shows what it showed then."""
    said = linrnn("train", "--resume", run.folder)
    assert run.summary is not None
    assert f"{run.summary['test']['best']:.1%} on test with the weights of the best validation" in said
    for name in ("summary.json", "curve.png", "spectrum.png", "metrics.jsonl", "checkpoints"):
        assert str(run.folder / name) in said.replace("\n", "")
        assert (run.folder / name).exists()


def test_train_changes_the_recipe(run: Run, tmp_path: Path) -> None:
    arguments = ["--core", "rnn", "--seed", "5", "--set", "model.options.nonlinearity=relu", "--quiet"]
    linrnn("train", "tiny", *SMALL, *arguments, "--out", tmp_path / "run")
    recipe = Run.open(tmp_path / "run").recipe
    assert (recipe.model.core, dict(recipe.model.options)) == ("rnn", {"nonlinearity": "relu"})
    assert (recipe.training.seed, recipe.training.steps, recipe.training.batch_size) == (5, 6, 8)
    assert run.recipe.training.seed == 0


def test_folders_are_named_and_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        linrnn("train", "tiny", "--quiet", *SMALL)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["tiny-lru", "tiny-lru-2"]


@pytest.mark.parametrize("weights", ["best", "last"])
def test_eval(run: Run, weights: str) -> None:
    assert run.summary is not None
    step = run.summary["best_step"] if weights == "best" else 6
    said = linrnn("eval", run.folder, "--weights", weights)
    accuracy = run.summary["test"][weights]
    assert said.startswith(f"{accuracy:.2%} of 45 test examples right, loss ")
    first, guess = said.strip().splitlines()
    assert first.endswith(f", {weights} weights, after step {step}")
    assert "the most frequent class: accuracy" in guess
    said = linrnn("eval", run.folder, "--split", "validation")
    assert said.startswith(f"{run.summary['validation']:.2%} of 45 validation examples right")


def test_runs(run: Run) -> None:
    assert run.summary is not None
    row = next(line for line in linrnn("runs", run.folder.parent).splitlines() if "first" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    speed = f"{run.summary['steps_per_second']:.1f}"
    accuracies = [f"{accuracy:.1%}" for accuracy in (run.summary["validation"], run.summary["test"]["best"])]
    assert cells == ["first", "tiny", "lru", "0", "0.02", "6 of 6", "accuracy", *accuracies, speed, "done"]


def test_a_narrow_window_cuts_no_name_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with a long name in common can be told apart."""
    monkeypatch.setattr(console.out, "_width", 50)
    assert "…" not in linrnn("runs", run.folder.parent)
    assert "…" not in linrnn("recipes").partition("field")[2]


@pytest.mark.parametrize("example", [0, 7, 44])
def test_stream(run: Run, example: int) -> None:
    """The last prediction is the one of the whole sequence at once."""
    task = load()
    model = Model(run.recipe.model.config(task)).eval()
    assert run.summary is not None
    checkpoint.restore_weights(checkpoint.path_of(run.checkpoints, run.summary["best_step"]), model)
    assert task.test.lengths is not None
    length = int(task.test.lengths[example])
    with torch.no_grad():
        logits = model(torch.tensor(task.test.inputs[[example], :length]).int())
    probability, best = logits.softmax(-1).max(-1)
    said = linrnn("stream", run.folder, "--example", str(example))
    assert f"target {task.test.targets[example]}" in said
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in said.splitlines() if line.startswith("│")]
    assert rows[-1] == [str(length), str(int(best)), f"{float(probability):.1%}"]
    seen = [int(row[0]) for row in rows]
    assert seen == sorted(set(seen))


def test_stream_of_a_run_that_looks_both_ways(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    both = ("--set", "model.options.bidirectional=true")
    linrnn("train", "tiny", "--quiet", "--out", tmp_path / "run", *SMALL, *both)
    code, said = failure(capfd, "stream", tmp_path / "run")
    assert code == 2
    assert "run: expected a causal model, got a bidirectional one" in said


def test_stream_of_an_example_that_is_not_there(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capfd, "stream", run.folder, "--example", "45")
    assert code == 2
    assert "--example: expected from 0 to 44, got 45" in said
