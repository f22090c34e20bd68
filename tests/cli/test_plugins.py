"""Cores and tasks of a user's own, in a module that no part of linrnn knows, from the registry to the command line."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import linrnn
from linrnn import recipes, tasks
from linrnn.cores import CORES
from linrnn.paper import presets
from linrnn.tasks.base import Source
from linrnn.training.overrides import override
from tests.cores.test_own_core import Average
from tests.training.helpers import environment

DOCS = Path(__file__).parents[2] / "docs" / "guide" / "cores.md"
if not DOCS.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)
(CORE,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)  # the core of the guide
MODULE = (
    CORE
    + """

def load():
    task = linrnn.tasks.load("recall")
    def cut(split):
        return linrnn.tasks.Split(split.inputs[:60, ::32], None, split.targets[:60])
    return linrnn.tasks.Task(name="short", train=cut(task.train), validation=cut(task.validation), test=cut(task.test),
                             classes=3, vocabulary=task.vocabulary, note="a few steps of recall")


linrnn.register_task("short", load, recipe="recall", note="a few steps of recall")
"""
)
SMALL = ("--set", "training.eval_every=2", "--set", "training.batch_size=4", "--device", "cpu")


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "linrnn", *arguments]  # -P: as an installed command, not from the folder
    return subprocess.run(line, env=environment() | {"COLUMNS": "200"}, cwd=folder, capture_output=True, text=True)


def said(folder: Path, *arguments: str) -> str:
    came = command(folder, *arguments)
    assert came.returncode == 0, came.stderr
    return came.stdout


@pytest.fixture
def registry() -> Iterator[None]:
    with patch.dict(CORES), patch.dict(tasks.TASKS), patch.dict(recipes.RECIPES):
        yield


def test_a_core_of_ones_own_from_training_to_pictures(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(MODULE)
    own = ("--import", "my_module")
    start = ("--set", "model.options.start=0.5", "--set", "training.steps=4")
    told = said(tmp_path, *own, "train", "recall", "--core", "average", *start, *SMALL)
    assert "spectrum.png" not in told, "there are no eigenvalues"
    folder = tmp_path / "runs" / "recall-average"
    assert (folder / "curve.png").stat().st_size > 1000
    (folder / "summary.json").unlink()  # as if it had been stopped at its last step
    assert "4 steps" in said(tmp_path, *own, "train", "--resume", "runs/recall-average", "--device", "cpu")
    assert "test examples right" in said(tmp_path, *own, "eval", "runs/recall-average", "--device", "cpu")
    assert "1,024" in said(tmp_path, *own, "stream", "runs/recall-average", "--device", "cpu")
    row = next(line for line in said(tmp_path, *own, "runs").splitlines() if "recall-average" in line)
    assert [cell.strip() for cell in row.split("│")][2:6] == ["recall", "average", "0", "0.01"]
    without = command(tmp_path, "runs")
    assert "recall-average cannot be read" in without.stderr
    assert "got 'average'" in without.stderr


def test_a_task_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(MODULE)
    said(tmp_path, "train", "--import", "my_module", "short", "--set", "training.steps=2", *SMALL)
    assert (tmp_path / "runs" / "short-lru" / "spectrum.png").exists()
    assert "a few steps of recall" in said(tmp_path, "--import", "my_module", "data", "list")


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [
        ("absent", None, "--import absent: ModuleNotFoundError: No module named 'absent'"),
        ("broken", "def", "--import broken: SyntaxError: "),
        (
            "twice",
            "import linrnn\nlinrnn.register_core('lru', linrnn.GRU)",
            "--import twice: ValueError: name: expected",
        ),
    ],
)
def test_a_module_that_fails_is_one_line(tmp_path: Path, module: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    came = command(tmp_path, "--import", module, "runs")
    assert came.returncode == 2
    assert len(came.stderr.splitlines()) == 1
    assert message in came.stderr


@pytest.mark.parametrize("target", ["my_plugin", "my_plugin:register", "absent"])
def test_plugins_of_installed_packages(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = MODULE.replace("linrnn.register_task(", "def register():\n    linrnn.register_task(")
    (tmp_path / "my_plugin.py").write_text(source if ":" in target else MODULE)
    package = tmp_path / "my_plugin-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[linrnn.plugins]\nmine = {target}\n")
    line = [sys.executable, "-m", "linrnn", "data", "list"]
    paths = environment() | {"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}", "COLUMNS": "200"}
    came = subprocess.run(line, env=paths, capture_output=True, text=True)
    if target == "absent":
        assert came.returncode == 2
        assert "plugin mine (absent): ModuleNotFoundError: No module named 'absent'" in came.stderr
        assert len(came.stderr.splitlines()) == 1
    else:
        assert came.returncode == 0, came.stderr
        assert "a few steps of recall" in came.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("lru", Average), ValueError, "name: expected a name that is not registered yet, got 'lru'"),
        ((3, Average), TypeError, "name: expected text, got 3"),
        (("a core", Average), ValueError, "name: expected letters, digits, _ and -, got 'a core'"),
        (("own", object), TypeError, "core: expected a subclass of linrnn.Core, got <class 'object'>"),
        (("own", Average(2, 2)), TypeError, r"core: expected a subclass of linrnn.Core, got Average\("),
        (("own", linrnn.Core), TypeError, "core: expected a class that implements _sequence, got Core"),
    ],
)
def test_wrong_cores(registry: None, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.register_core(*arguments)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("recall", object), {}, ValueError, "name: expected a name that is not registered yet, got 'recall'"),
        ((None, object), {}, TypeError, "name: expected text, got None"),
        (("own", 3), {}, TypeError, "load: expected a function that returns a linrnn.tasks.Task, got 3"),
        (("own", object), {"recipe": 3}, TypeError, "recipe: expected a Recipe or the name of one, got 3"),
        (("own", object), {"recipe": "recal"}, ValueError, "got 'recal'; did you mean 'recall'"),
    ],
)
def test_wrong_tasks(registry: None, arguments: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.register_task(*arguments, **options)
    assert "own" not in tasks.TASKS


def test_names_are_looked_up_when_they_are_used(registry: None) -> None:
    linrnn.register_core("average", Average)
    config = linrnn.ModelConfig(channels=1, classes=2, d_model=3, d_state=1, core="average")
    assert isinstance(linrnn.Model(config).blocks[0].core, Average)
    changed = override(recipes.get("recall"), ["model.core=average", "model.options.start=0.5"])
    assert (changed.model.core, changed.model.options) == ("average", {"start": 0.5})
    assert "average" in presets.names()
    with pytest.raises(TypeError, match=r"options\.start: expected a number, got 'x'"):
        recipes.ModelSettings(d_model=3, d_state=1, core="average", options={"start": "x"})


def test_a_name_of_the_ladder_is_no_name_for_a_core(registry: None) -> None:
    linrnn.register_core("diag-ring", Average)
    with pytest.raises(ValueError, match="expected a preset or a core, got 'diag-ring', which names both"):
        presets.apply(recipes.get("recall"), "diag-ring")


def test_a_task_without_a_recipe(registry: None) -> None:
    linrnn.register_task("own", lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="name: expected a task with a recipe, got 'own'"):
        recipes.get("own")
    with pytest.raises(TypeError, match=r"load of the task 'own': expected a linrnn\.tasks\.Task, got 3"):
        tasks.load("own")
    with pytest.raises(TypeError, match="source: expected a Source, got 3"):
        tasks.register(3)  # type: ignore[arg-type]
    tasks.register(Source(name="other", note="", examples=(1, 1, 1), origin="", licence=""))
    assert tasks.names()[-2:] == ["own", "other"]
