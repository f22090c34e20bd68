"""Training on data of one's own, of each kind: what is learned, recorded, stored, and used again without the data."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linrnn
from linrnn import objectives, recipes
from linrnn.tasks.base import Task
from linrnn.tasks.files import New, open_data
from linrnn.training import InterruptedRun, Run, checkpoint, loop, prediction, resume, train
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate, guesses
from tests.training import own
from tests.training.helpers import QUIET, assert_same_end, interrupt_at

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def outputs(model: linrnn.Model, task: Task) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    examples = Examples(task, task.test, CPU)
    inputs, lengths, targets = examples(torch.arange(len(examples)))
    with torch.no_grad():
        return model.eval()(inputs, lengths=lengths), targets, lengths


@pytest.mark.parametrize("kind", own.KINDS)
def test_a_run_and_its_model_without_the_data(kind: str, tmp_path: Path) -> None:
    """The folder is moved; what is loaded from it computes what the summary says."""
    task = own.task(kind)
    run = train(own.recipe(task), tmp_path / "first", QUIET, task=task)
    assert run.summary is not None
    metric = own.METRICS[kind]
    assert (run.summary["metric"], run.summary["kind"]) == (metric, task.kind)
    records = run.metrics()
    assert [record["step"] for record in records] == [4, 8, 12]
    best = (max if objectives.of(task).metrics[0].higher else min)(record[metric] for record in records)
    assert run.summary["validation"] == best
    (tmp_path / "first").rename(tmp_path / "moved")

    run = Run.open(tmp_path / "moved")
    assert run.recipe.task == "mine"
    model = linrnn.load(tmp_path / "moved")
    assert not model.training
    came, targets, lengths = outputs(model, task)
    every = torch.ones(len(targets), dtype=torch.bool)
    objective = run.objective()
    values = objective.values(objective.totals(came, targets, lengths, every))
    summary = run.summary
    assert summary is not None
    assert values[metric] == pytest.approx(summary["test"]["best"], rel=1e-6)
    assert values == pytest.approx(summary["metrics"]["best"], rel=1e-5)
    about = json.loads((tmp_path / "moved" / "run.json").read_text())
    assert about["linrnn"]
    assert run.description.description() == task.description()
    with pytest.raises(ValueError, match="data: expected the path of the examples of"):
        run.task()

    new = New(task.test.inputs, task.test.lengths, None, [str(i) for i in range(len(task.test))])
    said = prediction.predict(run, new)
    if task.numeric_targets:
        mean, std = (np.array(numbers, np.float32) for numbers in (task.target_mean, task.target_std))
        shaped = came.numpy().reshape(len(came), *task.test.targets.shape[1:]) * std + mean
        if task.relative:
            assert task.test.lengths is not None
            shaped = shaped + task.test.inputs[np.arange(len(shaped)), task.test.lengths - 1][:, None]
        assert np.allclose(said.values, shaped, rtol=1e-4, atol=1e-3)
        error = said.values - task.test.targets
        if task.test.lengths is None or task.kind == "forecast":
            assert np.sqrt((error**2).mean()) == pytest.approx(summary["test"]["best"], rel=1e-4)
        assert said.classes is None
    elif kind == "multi-label":
        assert np.allclose(said.values, came.sigmoid(), atol=1e-5)
    elif kind == "language":
        ends = -1 if task.test.lengths is None else task.test.lengths - 1
        last = came[np.arange(len(came)), ends].softmax(-1)
        assert np.allclose(said.values, last, atol=1e-5)
        assert said.classes is not None
        assert np.array_equal(said.classes, last.argmax(-1))
        assert (said.columns, said.lengths) == (task.vocabulary, None)
    else:
        assert np.allclose(said.values, came.softmax(-1), atol=1e-5)
        assert said.classes is not None
        assert np.array_equal(said.classes, came.argmax(-1))


@pytest.mark.parametrize("kind", own.KINDS)
def test_stopped_and_resumed_to_the_same_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = own.task(kind)
    whole = train(own.recipe(task), tmp_path / "whole", QUIET, task=task)
    interrupt_at(monkeypatch, 6)
    with pytest.raises(InterruptedRun):
        train(own.recipe(task), tmp_path / "parts", QUIET, task=task)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"expected the examples that .* was trained on, got other numbers"):
        resume(tmp_path / "parts", QUIET, task=own.task(kind, examples=61))
    assert_same_end(resume(tmp_path / "parts", QUIET, task=task), whole)


def test_a_forecast_of_changes_goes_on_above_all_levels_of_the_training(tmp_path: Path) -> None:
    """A straight line with a wave: the levels of the test do not occur in the training part."""
    steps = np.arange(600.0)
    path = tmp_path / "line.csv"
    path.write_text("\n".join(["load", *(f"{10 + 0.5 * k + np.sin(k):.4f}" for k in steps)]))
    rmse = {}
    for relative in (None, False):
        task = open_data(path, target="load", window=12, horizon=3, relative=relative)
        assert task.relative is (relative is None)
        recipe = own.recipe(task, steps=150, eval_every=50)
        run = train(recipe, tmp_path / str(relative), QUIET, task=task)
        assert run.summary is not None
        rmse[relative] = run.summary["test"]["best"]
    assert rmse[None] < rmse[False] / 2


def test_it_learns(tmp_path: Path) -> None:
    """A running sum comes far below the guess of the mean."""
    task = own.task("steps of numbers", examples=200)
    run = train(own.recipe(task, steps=300, eval_every=100), tmp_path / "run", QUIET, task=task)
    assert run.summary is not None
    assert run.summary["test"]["best"] < 0.8 * run.summary["guesses"]["the mean"]["rmse"]


@pytest.mark.parametrize("patience", [None, 1, 2])
def test_early_stopping(patience: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second evaluation is the best; a resumed run that has stopped early does no further step."""
    task = own.task("regression")
    errors = {4: 3.0, 8: 2.0, 12: 2.0, 16: 2.5, 20: 2.2}
    steps = iter(errors.values())
    real = evaluate
    monkeypatch.setattr(loop, "evaluate", lambda *a: real(*a) | {"rmse": next(steps, 9.0)})
    run = train(own.recipe(task, steps=20, patience=patience), tmp_path / "run", QUIET, task=task)
    assert run.summary is not None
    end = {None: 20, 1: 12, 2: 16}[patience]
    assert [record["step"] for record in run.metrics()] == [step for step in errors if step <= end]
    assert run.summary["steps"] == end
    assert run.summary["stopped_early"] is (patience is not None)
    assert run.summary["best_step"] == 8
    assert run.summary["validation"] == 2.0
    monkeypatch.undo()
    (run.folder / "summary.json").unlink()
    again = resume(run.folder, QUIET, task=task).summary
    assert again is not None
    assert again["steps"] == end


def test_patience_counts_on_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = own.task("regression")
    steps = iter([1.0, 2.0, 2.0, 2.0, 2.0])
    real = evaluate
    monkeypatch.setattr(loop, "evaluate", lambda *a: real(*a) | {"rmse": next(steps, 9.0)})
    interrupt_at(monkeypatch, 9)  # after the evaluations at 4 and 8
    with pytest.raises(InterruptedRun):
        train(own.recipe(task, steps=40, patience=3), tmp_path / "run", QUIET, task=task)
    interrupt_at(monkeypatch, -1)
    summary = resume(tmp_path / "run", QUIET, task=task).summary
    assert summary is not None
    assert summary["steps"] == 16


def test_guesses() -> None:
    """Persistence and the seasonal naive forecast, by hand; classes and means."""
    task = own.task("forecast")
    window, targets = (np.asarray(x, np.float64) for x in (task.test.inputs, task.test.targets))
    found = guesses(task, task.test)
    assert found.keys() == {"persistence", "seasonal naive"}
    for name, backward in (("persistence", [1, 1, 1]), ("seasonal naive", [2, 1, 2])):
        error = np.stack([targets[:, h] - window[:, -back] for h, back in enumerate(backward)], axis=1)
        assert found[name]["rmse"] == pytest.approx(math.sqrt((error**2).mean()))
        assert found[name]["mae"] == pytest.approx(abs(error).mean())
    steps = own.task("per-step")
    assert steps.test.lengths is not None
    cut = [t[:n] for t, n in zip(steps.test.targets, steps.test.lengths, strict=True)]
    of_train = [t[:n] for t, n in zip(steps.train.targets, steps.train.lengths, strict=True)]  # type: ignore[arg-type]
    most = int(np.bincount(np.concatenate(of_train)).argmax())
    assert guesses(steps, steps.test)["the most frequent class"]["accuracy"] == (np.concatenate(cut) == most).mean()
    text = own.task("language")
    counts = np.bincount(text.train.targets.ravel(), minlength=3) + 1
    bits = -np.log2(counts / counts.sum())[text.test.targets].mean()
    assert guesses(text, text.test)["symbol frequencies"]["bits_per_character"] == pytest.approx(bits)


@pytest.mark.parametrize("kind", own.KINDS)
def test_a_suggested_recipe_trains(kind: str, tmp_path: Path) -> None:
    task = own.task(kind)
    suggestion = recipes.suggest(task)
    assert all(text.endswith(".") and text[0].isupper() | text[0].isdigit() for text in suggestion.reasons.values())
    few = replace(suggestion.recipe.training, steps=2)
    short = replace(suggestion, recipe=replace(suggestion.recipe, training=few))
    run = train(short, tmp_path / "run", QUIET, task=task)
    assert run.recipe.model == suggestion.recipe.model
    assert run.summary is not None


def test_suggestions_suit_the_task() -> None:
    def of(examples: int, length: int) -> recipes.Recipe:
        inputs = np.zeros((examples, length, 1), np.float32)
        inputs[:, 0] = np.arange(examples)[:, None]
        return recipes.suggest(Task.from_arrays(inputs, np.arange(examples) % 2, kind="classification")).recipe

    small, long, large = of(40, 50), of(40, 4000), of(4000, 500)
    assert small.model.d_model < large.model.d_model
    assert small.model.options["r_max"] < long.model.options["r_max"]
    assert long.model.options["max_phase"] < small.model.options["max_phase"]
    assert small.model.dropout > large.model.dropout
    assert small.training.batch_size <= 32
    tokens = np.random.default_rng(0).integers(0, 9, (600, 300))
    text = recipes.suggest(Task.from_arrays(tokens, kind="language")).recipe.model
    one = recipes.suggest(Task.from_arrays(tokens, tokens[:, 0], kind="classification")).recipe.model
    assert text.dropout < one.dropout, "a text has a target at each step"
    assert text.options["r_min"] < one.options["r_min"]


def test_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    task = own.task("classification")
    for wrong, message in (
        (own.recipe(own.task("per-step")), "model.pooling: expected 'mean', 'last' or 'all'"),
        (own.recipe(task, loss="absolute"), "training.loss"),
        (own.recipe(task, batch_size=1000), "training.batch_size"),
    ):
        with pytest.raises(ValueError, match=message):
            train(wrong, tmp_path / "run", QUIET, task=task)
        assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"training\.class_weights: expected None for numbers, got balanced"):
        train(own.recipe(own.task("regression"), class_weights="balanced"), tmp_path / "run", QUIET,
              task=own.task("regression"))  # fmt: skip
    with pytest.raises(TypeError, match=r"task: expected a linrnn\.Task"):
        train(own.recipe(task), tmp_path / "run", QUIET, task="mine")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_class_weights_and_smoothing_are_stored(tmp_path: Path) -> None:
    task = own.task("classification")
    chosen = own.recipe(task, class_weights="balanced", label_smoothing=0.1)
    run = train(chosen, tmp_path / "run", QUIET, task=task)
    assert run.objective().options.class_weights == objectives.balanced(task.train, 2)
    assert run.recipe.training == chosen.training
    plain = train(own.recipe(task), tmp_path / "plain", QUIET, task=task)
    assert run.metrics()[0]["loss"] != plain.metrics()[0]["loss"]


def test_data_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run finds its data again, and takes it from elsewhere; normalization is that of training."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "inputs": rng.normal(size=(50, 6, 1)).astype(np.float32),
        "targets": rng.normal(size=(50, 1)),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    path = tmp_path / "data.npz"
    task = open_data(path, seed=3)
    interrupt_at(monkeypatch, 6)
    with pytest.raises(InterruptedRun):
        train(own.recipe(task), tmp_path / "run", QUIET, task=task, data=path, options={"seed": 3})
    monkeypatch.undo()
    run = Run.open(tmp_path / "run")
    assert np.array_equal(run.task().test.inputs, task.test.inputs), "the same split"
    path.rename(tmp_path / "elsewhere.npz")
    with pytest.raises(ValueError, match=r"data: expected the examples of .* in .*data\.npz, where there is nothing"):
        run.task()
    np.savez(tmp_path / "scaled.npz", **{name: 10 * array for name, array in arrays.items()})
    assert run.task(tmp_path / "scaled.npz").mean == task.mean
    with pytest.raises(ValueError, match="was trained on, got other numbers"):
        resume(run.folder, QUIET, data=tmp_path / "scaled.npz")
    np.savez(
        tmp_path / "wide.npz",
        inputs=np.zeros((50, 6, 2), np.float32) + np.arange(6)[:, None],
        targets=np.linspace(0, 1, 50),
    )
    with pytest.raises(
        ValueError, match=r"data: expected examples like the examples of .*, got channels=2 in place of 1"
    ):
        run.task(tmp_path / "wide.npz")
    whole = train(own.recipe(task), tmp_path / "whole", QUIET, task=task)
    assert_same_end(resume(run.folder, QUIET, data=tmp_path / "elsewhere.npz"), whole)


def test_a_run_of_an_earlier_version(tmp_path: Path) -> None:
    """Without run.json, with accuracies in its checkpoints: it is read as ever."""
    from tests.training.helpers import tiny_world, train_tiny

    with tiny_world():
        run = train_tiny(tmp_path / "run")
        model = run.model()
        (run.folder / "run.json").unlink()
        assert run.metric == objectives.ACCURACY
        assert run.task().name == "tiny"
        assert run.objective().metrics == (objectives.ACCURACY,)
        loaded = linrnn.load(run.folder)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    assert checkpoint.steps_in(run.checkpoints)


def test_generation(tmp_path: Path) -> None:
    """The same for the same seed; what is drawn follows the probabilities of the whole text so far."""
    task = own.task("language")
    assert task.vocabulary is not None
    model = train(own.recipe(task), tmp_path / "run", QUIET, task=task).model()

    def text(seed: int, temperature: float = 1.0) -> str:
        return "".join(prediction.generate(model, task.vocabulary or (), "ab", 40, seed=seed, temperature=temperature))

    assert text(1) == text(1)
    assert text(1) != text(2)
    so_far = [0, 1]
    for symbol in text(0, temperature=0.0):
        with torch.no_grad():
            best = int(model(torch.tensor([so_far]))[0, -1].argmax())
        assert symbol == task.vocabulary[best]
        so_far.append(best)
    with pytest.raises(ValueError, match="prompt: expected symbols of the training data, got 'x'"):
        prediction.generate(model, task.vocabulary, "axb", 1)
    with pytest.raises(ValueError, match="prompt: expected at least one symbol"):
        prediction.generate(model, task.vocabulary, "", 1)


def test_generation_follows_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many draws have the frequencies of the model's probabilities; what is unknown is never drawn."""

    class Fixed:
        def __init__(self, model: Any) -> None: ...

        def step(self, token: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[9.0, 0.0, math.log(3)]])

    monkeypatch.setattr(prediction, "Stream", Fixed)
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=3, classes=3, d_model=4, d_state=4, depth=1, pooling="none"))
    drawn = list(prediction.generate(model, ("<unk>", "a", "b"), "a", 2000, seed=0))
    assert set(drawn) == {"a", "b"}
    assert drawn.count("b") / 2000 == pytest.approx(0.75, abs=0.03)
