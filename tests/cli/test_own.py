"""Data of one's own on the command line, in real processes: from a file to a model, and to predictions of new data."""

import csv
import shutil
import signal
import subprocess
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn.tasks.files import read_new
from linrnn.training import Run, prediction
from tests.training import own
from tests.training.helpers import assert_same_end, run_command, signal_after

SMALL = (
    "--steps", "6", "--set", "training.batch_size=8", "--device", "cpu",
    *(word for field in ("d_model=6", "d_state=6", "depth=1") for word in ("--set", f"model.{field}")),
    "--set", "training.eval_every=3",
)  # fmt: skip


def linrnn(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    came = run_command(*arguments, module="linrnn")
    assert came.returncode == 0, came.stderr
    return came


def write(folder: Path, kind: str) -> tuple[Path, Path, list[str]]:
    """A file for training, one for prediction, and the options of the first."""
    rng = np.random.default_rng(0)
    if kind == "forecast":
        rows = [f"{10 * np.sin(i / 3) + rng.normal():.4f},{rng.normal():.4f}" for i in range(400)]
        (folder / "data.csv").write_text("\n".join(["price,other", *rows]))
        (folder / "new.csv").write_text("\n".join(["price,other", *rows[:50]]))
        options = ["--target", "price", "--window", "16", "--horizon", "4", "--period", "19"]
        return folder / "data.csv", folder / "new.csv", options
    if kind == "audio":
        for name, step in (("high", 0.9), ("low", 0.2)):
            (folder / "sounds" / name).mkdir(parents=True)
            for i in range(15):
                samples = (9000 * np.sin(step * np.arange(60 + i))).astype("<i2")
                with wave.open(str(folder / "sounds" / name / f"{i}.wav"), "wb") as file:
                    file.setparams((1, 2, 8000, 0, "NONE", ""))
                    file.writeframes(samples.tobytes())
        return folder / "sounds", folder / "sounds" / "low" / "3.wav", []
    task = own.task(kind, examples=80)
    arrays: dict[str, Any] = {}
    inputs, lengths, targets = (
        [np.concatenate([getattr(getattr(task, s), part) for s in ("train", "validation", "test")])]
        if getattr(task.train, part) is not None
        else []
        for part in ("inputs", "lengths", "targets")
    )
    arrays |= {"inputs": inputs[0]} | ({"lengths": lengths[0]} if lengths else {})
    if kind == "both":
        arrays |= {"inputs": inputs[0][..., :2], "tokens": inputs[0][..., 2].astype(np.int64)}
    labels: dict[str, Any] = {} if task.labels is None else {"labels": np.array(task.labels)}
    np.savez(folder / "data.npz", **arrays, **labels, targets=targets[0])
    np.savez(folder / "new.npz", **{name: array[:5] for name, array in arrays.items()})
    return folder / "data.npz", folder / "new.npz", []


SLOW = ("multi-label", "regression", "per-step", "steps of numbers", "both", "audio")


@pytest.mark.parametrize(
    "kind", ["classification", "forecast", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
def test_from_a_file_to_predictions(kind: str, tmp_path: Path) -> None:
    """Train, take the run elsewhere without its data, predict into a table, and evaluate with the data again."""
    data, new, options = write(tmp_path, kind)
    said = linrnn("train", data, *options, *SMALL, "--out", tmp_path / "first").stdout
    for part in ("The data", "The choices", "To beat on validation", "As asked for: ", "training.steps=6", "on test"):
        assert part in said
    assert "Eigenvalues start between" in said
    (tmp_path / "first").rename(tmp_path / "run")
    (tmp_path / "kept").mkdir()
    data = data.rename(tmp_path / "kept" / data.name)
    new = tmp_path / "kept" / "sounds" / "low" / "3.wav" if kind == "audio" else new
    linrnn("predict", tmp_path / "run", new, "--out", tmp_path / "said.csv", "--device", "cpu")
    run = Run.open(tmp_path / "run")
    expected = prediction.predict(run, read_new(new, run.description))
    with open(tmp_path / "said.csv", newline="") as file:
        header, *rows = list(csv.reader(file))
    names = [str(name) for name in expected.columns]
    step = ["step"] if expected.values.ndim == 3 else []
    if expected.classes is None:
        assert header == ["example", *step, *names]
    else:
        assert header == ["example", *step, "prediction", *(f"p({name})" for name in names)]
    numbers = np.array([row[-len(names) :] for row in rows], float)
    lengths = expected.lengths
    wanted = (
        expected.values.reshape(-1, len(names))
        if lengths is None
        else np.concatenate([x[:n] for x, n in zip(expected.values, lengths, strict=True)])
    )
    assert np.allclose(numbers, wanted, rtol=1e-4, atol=1e-5)
    if expected.classes is not None:
        said_names = [row[len(step) + 1] for row in rows]
        assert said_names == [names[int(i)] for i in wanted.argmax(-1)]
    assert run.summary is not None
    came = linrnn("eval", tmp_path / "run", "--data", data, "--device", "cpu").stdout
    first = run.metric
    assert first.text(run.summary["test"]["best"])[:4] in came.splitlines()[0]
    without = run_command("eval", tmp_path / "run", module="linrnn")
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "data: expected the examples of" in without.stderr


def test_from_a_text_to_a_text(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Once upon a time there was a ring. " * 60)
    linrnn("train", tmp_path / "book.txt", "--window", "30", *SMALL, "--out", tmp_path / "run", "--quiet")
    arguments = ("generate", tmp_path / "run", "--prompt", "Once", "--length", "50", "--seed")
    one, again, other = (linrnn(*arguments, seed).stdout for seed in ("1", "1", "2"))
    assert one == again != other
    assert one.startswith("Once")
    assert len(one) == 4 + 50 + 1
    assert len(linrnn("generate", tmp_path / "run", "--length", "5").stdout) == 1 + 5 + 1
    some = linrnn("generate", tmp_path / "run", "--prompt", "Zeus", "--length", "5")
    assert some.stdout.startswith("eus"), "what the text does not have is left out"
    assert len(some.stdout) == 3 + 5 + 1
    assert "the training data does not have 'Z': left out of the prompt" in some.stderr
    wrong = run_command("generate", tmp_path / "run", "--prompt", "ZZZ", module="linrnn")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "linrnn: --prompt: expected at least one symbol of the training data, got 'ZZZ'\n"


def test_predictions_as_arrays(tmp_path: Path) -> None:
    data, new, _ = write(tmp_path, "classification")
    linrnn("train", data, *SMALL, "--out", tmp_path / "run", "--quiet")
    linrnn("predict", tmp_path / "run", new, "--out", tmp_path / "said.npz")
    with np.load(tmp_path / "said.npz") as said:
        assert said["columns"].tolist() == ["big", "small"]
        assert said["probabilities"].shape == (5, 2)
        assert np.array_equal(said["predictions"], said["probabilities"].argmax(1))
    shown = linrnn("predict", tmp_path / "run", new).stdout
    assert "p(big)" in shown
    wrong = run_command("predict", tmp_path / "run", new, "--out", tmp_path / "said.txt", module="linrnn")
    assert wrong.stderr.startswith("linrnn: --out: expected a name that ends in .csv or .npz")


def test_killed_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """The path and how it was read are in the run."""
    data, _, options = write(tmp_path, "forecast")
    command: tuple[str | Path, ...] = (
        "train",
        data,
        *options,
        *SMALL,
        "--quiet",
        "--steps",
        "300",
        "--set",
        "training.patience=none",
        "--out",
    )
    signal_after(9, tmp_path / "parts", signal.SIGKILL, 0.01, *command, tmp_path / "parts")
    linrnn("train", "--resume", tmp_path / "parts", "--quiet", "--device", "cpu")
    linrnn(*command, tmp_path / "whole")
    assert_same_end(Run.open(tmp_path / "parts"), Run.open(tmp_path / "whole"))


MISTAKES = [
    (["train", "recall", "--target", "x"], "--target: expected only for a file of your own, got recall"),
    (["train", "{here}/none.csv"], "none.csv: expected a file or a folder"),
    (["train", "{here}/data.csv", "--window", "9"], "target: expected one of the columns price, other"),
    (["train", "{here}/data.csv", "--target", "prise", "--window", "9", "--horizon", "2"], "did you mean 'price'?"),
    (
        ["train", "{here}/data.csv", "--target", "price", "--window", "0", "--horizon", "2"],
        "window: expected at least 1",
    ),
    (["train", "{here}/data.npz", "--missing", "maen"], "missing: expected 'error' or 'mean' or 'drop', got 'maen'"),
    (["train", "{here}/data.csv", "--rate", "9", "--target", "price"], "rate: expected for folders of audio only"),
    (["train", "{here}/data.csv", "--variant", "x"], "--variant: expected only for a task with variants"),
    (["train", "{here}/data.npz", "--set", "training.loss=absolute"], "training.loss: expected None"),
    (["train", "{here}/data.npz", "--learning-rate", "-1"], "learning_rate: expected a number above 0"),
    (["train", "{here}/data.npz", "--patience", "0"], "patience: expected at least 1"),
    (["train", "{here}/data.npz", "--set", "model.pooling=none"], "model.pooling: expected 'mean', 'last' or 'all'"),
    (["train", "{here}/text.npz"], "text.npz: expected an array `inputs`"),
    (["train", "--data", "{here}/data.npz"], "--data: expected only with --resume"),
    (["sweep", "{here}/data.npz", "--set", "training.learning_rate=.1,x"], "learning_rate: expected a number, got 'x'"),
    (["sweep", "{here}/data.npz", "--set", "training.seed=1,2"], "--set training.seed: expected --seeds"),
    (["predict", "{here}/none", "{here}/data.npz"], "run: expected the folder of a run"),
    (["compare", "{here}/none"], "RUN: expected the folder of a run"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write(folder, "forecast")
    write(folder, "classification")
    np.savez(folder / "text.npz", a=np.zeros(3), b=np.zeros(3))
    return folder


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes(
    arguments: list[str],
    message: str,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One line on stderr, exit code 2, and no folder is left behind."""
    from tests.cli.test_app import failure

    monkeypatch.chdir(tmp_path)
    more = ["--quiet"] if arguments[0] in ("train", "sweep") else []
    code, said = failure(capfd, *(argument.format(here=files) for argument in arguments), *more)
    assert code == 2
    assert message in said
    assert said.startswith("linrnn: ")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_sweep(tmp_path: Path) -> None:
    """All combinations with all seeds; what was done is skipped, what was stopped is resumed, and a table ends it."""
    data, _, _ = write(tmp_path, "classification")
    place = tmp_path / "sweep"
    command: tuple[str | Path, ...] = (
        "sweep", data, *SMALL, "--set", "training.learning_rate=.001,.01", "--seeds", "2", "--quiet", "--out", place,
        "--csv", tmp_path / "table.csv",
    )  # fmt: skip
    first = linrnn(*command).stdout
    runs = sorted(place.iterdir())
    assert [run.name for run in runs] == [
        f"learning_rate={rate},seed={seed}" for rate in (".001", ".01") for seed in (0, 1)
    ]
    assert {(r.training.learning_rate, r.training.seed) for r in (Run.open(run).recipe for run in runs)} == {
        (rate, seed) for rate in (0.001, 0.01) for seed in (0, 1)
    }
    before = [(run / "summary.json").stat().st_mtime_ns for run in runs]
    shutil.rmtree(runs[3])
    (runs[2] / "summary.json").unlink()
    assert linrnn(*command).stdout == first
    after = [(run / "summary.json").stat().st_mtime_ns for run in runs]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, False]
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["training.learning_rate"] for row in rows} == {"0.001", "0.01"}
    for row in rows:
        scores = []
        for run in map(Run.open, runs):
            if run.recipe.training.learning_rate == float(row["training.learning_rate"]):
                assert run.summary is not None
                scores.append(run.summary["test"]["best"])
        assert float(row["test"]) == pytest.approx(np.mean(scores))
        assert float(row["test error"]) == pytest.approx(np.std(scores, ddof=1) / np.sqrt(2))
        assert row["seeds"] == "2"
    other = run_command(*command, "--steps", "7", module="linrnn")
    assert other.returncode == 2
    assert "--out: expected runs of the same sweep" in other.stderr
