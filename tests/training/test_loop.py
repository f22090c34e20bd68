"""What a run learns, records, shows and leaves behind."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import linrnn
from linrnn import objectives, tasks
from linrnn.fast import Accelerated, packing
from linrnn.model import Model
from linrnn.tasks.base import Split
from linrnn.training import NonFiniteLossError, Run, Settings, checkpoint, loop, resume, train
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate
from linrnn.training.optimizer import learning_rate
from linrnn.training.report import waiting
from linrnn.util import provenance
from tests.training.helpers import QUIET, RECIPE, load, metrics, tiny_world, train_tiny

PINNED = {  # the mean losses of steps 1-20, 21-40 and 41-50
    "lru": [1.3314911, 1.2605557, 1.1481681],
    "rnn": [1.3660076, 1.2812834, 1.1884976],
    "layer-norm": [1.4122837, 1.2853165, 1.2089968],
    "clip": [1.3406118, 1.2180773, 1.1198395],
}


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with tiny_world():
        yield


@pytest.fixture(scope="module")
def run(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_tiny(tmp_path_factory.mktemp("loop") / "run")


@pytest.mark.parametrize("weights", ["best", "last"])
def test_the_trained_model_is_there_in_python(run: Run, weights: Literal["best", "last"], tmp_path: Path) -> None:
    """It is as accurate as the summary says, also once it is saved apart from the run."""
    assert run.summary is not None
    task = tasks.load("tiny")
    examples = Examples(task, task.test, torch.device("cpu"))
    inputs, lengths, targets = examples(torch.arange(len(examples)))
    run.model(weights).save(tmp_path)
    for model in (run.model(weights), linrnn.load(tmp_path)):
        right = model(inputs, lengths=lengths).argmax(-1) == targets
        assert float(right.double().mean()) == pytest.approx(run.summary["test"][weights], abs=1e-9)


@pytest.mark.skipif(not Path(".git").exists(), reason="this is no checkout")
def test_the_commit_is_that_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout may move on before the run has ended."""
    commits = iter(["first", "second"])

    def describe(command: list[str], **_: object) -> SimpleNamespace:
        assert "describe" in command
        return SimpleNamespace(stdout=f"{next(commits)}\n")

    def evaluating(*arguments: Any) -> Any:
        assert next(commits) == "second"  # the first was asked for before
        monkeypatch.setattr(loop, "evaluate", evaluate)
        return evaluate(*arguments)

    monkeypatch.setattr("linrnn.util.provenance.subprocess.run", describe)
    monkeypatch.setattr(loop, "evaluate", evaluating)
    provenance.commit.cache_clear()
    summary = train_tiny(tmp_path / "run").summary
    provenance.commit.cache_clear()
    assert summary is not None
    assert summary["commit"] == "first"


def test_weights_of_an_unknown_name(run: Run) -> None:
    with pytest.raises(ValueError, match="weights: expected 'best' or 'last', got 'lst'; did you mean 'last'"):
        run.model("lst")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("lru", [], id="lru"),
        pytest.param("rnn", ["model.core=rnn"], id="rnn"),
        pytest.param("layer-norm", ["model.norm=layer", "model.depth=2", "model.mixing=half_glu"], id="layer-norm"),
        pytest.param("clip", ["training.clip=0.1", "model.dropout=0"], id="clip"),
    ],
)
def test_losses_are_pinned(tmp_path: Path, name: str, changes: list[str]) -> None:
    """To show silent changes: if one was meant, store what came."""
    losses = [record["loss"] for record in train_tiny(tmp_path / "run", *changes).metrics()]
    assert losses == pytest.approx(PINNED[name], abs=1e-5), losses


def test_it_learns(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run", "training.steps=300", "model.dropout=0", "training.eval_every=100")
    losses = [record["loss"] for record in run.metrics()]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.4  # chance is 1.39


def test_packed_batches_train_as_padded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lengths differ much, a batch is a row without padding; the losses are the same to rounding."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 120, size=60)
    split = Split(rng.integers(4, size=(60, 120), dtype=np.uint8), lengths, rng.integers(4, size=60))
    task = replace(load(), train=split)
    rows = []
    forward = Accelerated.forward

    def watched(self: Accelerated, inputs: Tensor, **options: Any) -> Tensor:
        rows.append(options.get("packed_length"))
        return forward(self, inputs, **options)

    monkeypatch.setattr(Accelerated, "forward", watched)
    losses = []
    for worthwhile in (packing.WORTHWHILE, 0.0):
        monkeypatch.setattr(packing, "WORTHWHILE", worthwhile)
        with tiny_world(), patch.object(tasks, "load", lambda name: task):
            run = train_tiny(tmp_path / str(worthwhile), "model.dropout=0")
        losses.append(torch.tensor([record["loss"] for record in run.metrics()]))
    assert set(rows[:50]) == {768}  # instead of 8 × 120
    assert set(rows[50:]) == {None}
    assert (losses[0] - losses[1]).abs().max() < 1e-4


def test_metrics(run: Run) -> None:
    records = run.metrics()
    assert [record["step"] for record in records] == [20, 40, 50]
    for record in records:
        assert record.keys() == {"step", "loss", "validation_loss", "accuracy", "rate", "seconds"}
        assert 0 < record["validation_loss"] < 2
        assert record["rate"] == learning_rate(RECIPE.training, record["step"] - 1)
        assert 0 <= record["accuracy"] <= 1
        assert record["accuracy"] * 45 == pytest.approx(round(record["accuracy"] * 45))
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)


def test_summary(run: Run) -> None:
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary == run.summary
    records = run.metrics()
    best = max(records, key=lambda record: (float(record["accuracy"]), -float(record["validation_loss"])))
    assert summary["validation"] == best["accuracy"]
    assert summary["best_step"] == best["step"]
    assert summary["parameters"] == sum(p.numel() for p in Model(RECIPE.model.config(load())).parameters())
    assert summary["seconds"] == pytest.approx(records[-1]["seconds"], abs=0.01)
    assert summary["steps_per_second"] == pytest.approx(50 / records[-1]["seconds"], rel=0.01)
    expected = {"task": "tiny", "core": "lru", "steps": 50, "seed": 0, "device": "cpu", "precision": "float32"}
    assert {name: summary[name] for name in expected} == expected
    assert {"commit", "machine", "versions"} <= summary.keys()


@pytest.mark.parametrize("which", ["best", "last"])
def test_accuracy_on_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """Of the weights after step 20, liked best by validation (the lower loss of two equals), and of the last."""
    real, liked = evaluate, iter([(0.9, 0.3), (0.9, 0.4), (0.7, 0.2)])

    def evaluate_or_like(*arguments: Any) -> dict[str, float]:
        values = real(*arguments)
        accuracy, loss = next(liked, (values["accuracy"], values["loss"]))
        return values | {"accuracy": accuracy, "loss": loss}

    monkeypatch.setattr(loop, "evaluate", evaluate_or_like)
    run = train_tiny(tmp_path / "run", "training.learning_rate=0.05")
    assert run.summary is not None
    assert run.summary["best_step"] == 20
    assert checkpoint.steps_in(run.checkpoints) == [20, 40, 50]
    assert run.summary["test"]["best"] != run.summary["test"]["last"], "the test cannot tell them apart"
    step = {"best": 20, "last": 50}[which]
    assert run.summary["test"][which] == accuracy_after(run, step)


def accuracy_after(run: Run, step: int) -> float:
    """On the test split, one example at a time."""
    task = load()
    model = Model(run.recipe.model.config(task)).eval()
    checkpoint.restore_weights(checkpoint.path_of(run.checkpoints, step), model)
    right = 0
    assert task.test.lengths is not None
    for tokens, length, target in zip(task.test.inputs, task.test.lengths, task.test.targets, strict=True):
        logits = model(torch.tensor(tokens[None, :length]).int())
        right += int(logits.argmax()) == int(target)
    return right / len(task.test)


@pytest.mark.parametrize("batch_size", [1, 7, 45, 64])
def test_evaluate_counts_each_example_once(batch_size: int) -> None:
    examples = Examples(load(), load().test, torch.device("cpu"))
    seen: list[int] = []

    def predict(inputs: Tensor, lengths: Tensor | None) -> Tensor:
        seen.append(len(inputs))
        return F.one_hot(inputs[:, 0].long(), 4).float()  # always right, but for class 3

    model = nn.Linear(1, 1).train()
    objective = objectives.of(load())
    values = evaluate(predict, model, examples, objective, batch_size)
    assert values["accuracy"] == 1
    assert values["loss"] == pytest.approx(
        math.log(1 + 3 / math.e)
    )  # a logit of 1 for the right class, 0 for three others
    assert set(seen) == {batch_size}, "all batches are of one shape"
    assert model.training
    values = evaluate(lambda x, n: predict(x, n) * (x[:, :1] != 3), model, examples, objective, batch_size)
    share = values["accuracy"]
    assert share == 1 - int((examples.targets == 3).sum()) / 45
    assert values["loss"] == pytest.approx(share * math.log(1 + 3 / math.e) + (1 - share) * math.log(4))


@pytest.mark.parametrize("core", ["lru", "rnn"])
@pytest.mark.parametrize("depth", [1, 4])
def test_pictures(tmp_path: Path, core: str, depth: int) -> None:
    run = train_tiny(tmp_path / "run", f"model.core={core}", f"model.depth={depth}", "training.steps=1")
    for name in ("curve.png", "spectrum.png"):
        assert (run.folder / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_spectrum_before_training_is_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linrnn.training import pictures

    seen: list[Any] = []
    real = pictures._eigenvalues

    def note(core: Any) -> Any:
        seen.append(real(core))
        return seen[-1]

    monkeypatch.setattr(pictures, "_eigenvalues", note)
    run = train_tiny(tmp_path / "run", "training.steps=2")
    torch.manual_seed(run.recipe.training.seed)
    began: Any = Model(RECIPE.model.config(load())).blocks[0].core
    before, after = seen
    assert torch.equal(before, began.eigenvalues())
    assert not torch.equal(before, after)


def test_the_summary_is_written_before_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linrnn.training import pictures

    monkeypatch.setattr(pictures, "curve", Mock(side_effect=RuntimeError("no picture")))
    with pytest.raises(RuntimeError, match="no picture"):
        train_tiny(tmp_path / "run", "training.steps=2")
    assert Run.open(tmp_path / "run").summary is not None


@pytest.mark.parametrize("seed", [1, 2**62])
def test_another_seed(run: Run, tmp_path: Path, seed: int) -> None:
    other = train_tiny(tmp_path / "run", f"training.seed={seed}")
    assert metrics(other) != metrics(run)


def test_clipping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step sees a gradient longer than `clip`; without it they are."""
    norms: list[float] = []

    def step(optimizer: torch.optim.AdamW, closure: None = None) -> None:
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(float(torch.nn.utils.get_total_norm(grads)))

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    train_tiny(tmp_path / "free", "training.steps=3")
    free = list(norms)
    assert min(free) > 0.05
    norms.clear()
    train_tiny(tmp_path / "clipped", "training.steps=3", "training.clip=0.05")
    assert norms == pytest.approx([0.05] * 3, rel=1e-3)


def poison(monkeypatch: pytest.MonkeyPatch, step: int, spoil: Callable[[Tensor], Tensor]) -> None:
    """Spoil the loss of one step."""
    steps = iter(range(1, 1_000))
    real = F.cross_entropy

    def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        loss = real(logits, targets, reduction=reduction)
        return spoil(loss) if reduction == "mean" and next(steps) == step else loss  # evaluations take no step

    monkeypatch.setattr(F, "cross_entropy", cross_entropy)


@pytest.mark.parametrize(
    ("step", "value"), [(1, math.nan), (20, math.inf), (21, math.nan), (33, math.inf), (50, math.nan)]
)
def test_a_loss_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, value: float) -> None:
    poison(monkeypatch, step, lambda loss: loss * value)
    with pytest.raises(NonFiniteLossError) as error:
        train_tiny(tmp_path / "run")
    monkeypatch.undo()
    run = Run.open(tmp_path / "run")
    kept = {1: [], 20: [], 21: [20], 33: [20], 50: [20, 40]}[step]
    assert checkpoint.steps_in(run.checkpoints) == kept
    path = str(checkpoint.path_of(run.checkpoints, kept[-1])) if kept else "none was written yet"
    for part in (f"the loss is {value} at step {step},", path, "smaller training.learning_rate", "training.clip=1"):
        assert part in str(error.value)
    assert run.summary is None
    assert [record["step"] for record in run.metrics()] == kept
    assert resume(run.folder, QUIET).summary is not None, "the last good checkpoint goes on"


def test_weights_that_are_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last loss before an evaluation is finite, its gradient is not: no checkpoint of that is a good one."""
    poison(monkeypatch, 40, lambda loss: loss + (loss - loss).sqrt())
    with pytest.raises(NonFiniteLossError, match=r"a weight is not finite after step 40,.*step-000000020"):
        train_tiny(tmp_path / "run")
    assert checkpoint.steps_in(tmp_path / "run" / "checkpoints") == [20]


def test_a_rate_that_is_too_large(tmp_path: Path) -> None:
    """By nature: eigenvalues leave the unit disk, and a state overflows."""
    changes = ("model.options.parameterization=real_imag", "training.learning_rate=1e30", "training.warmup=0")
    with pytest.raises(NonFiniteLossError, match=r"parameterization=stable_exp"):
        train_tiny(tmp_path / "run", *changes)


def test_a_precision_that_is_none() -> None:
    with pytest.raises(ValueError, match="precision: expected 'bfloat16' or 'float32', got 'float8'"):
        Settings(precision="float8")  # type: ignore[arg-type]


def test_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train_tiny(tmp_path / "quiet", "training.steps=2")
    assert capfd.readouterr() == ("", "")
    train_tiny(tmp_path / "loud", "training.steps=2", settings=replace(QUIET, quiet=False))
    assert "tiny, lru" in capfd.readouterr().out


def test_tensorboard(tmp_path: Path) -> None:
    settings = replace(QUIET, tensorboard=True)
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ModuleNotFoundError, match=r"needs tensorboard.* pip install 'linrnn\[tensorboard\]'"):
            train_tiny(tmp_path / "run", settings=settings)
        assert not (tmp_path / "run").exists()
    else:
        run = train_tiny(tmp_path / "run", settings=settings)
        assert list((run.folder / "tensorboard").glob("events*"))


@pytest.mark.parametrize(
    ("change", "message"),
    [("training.batch_size=61", "training.batch_size: expected at most 60"), ("model.options.r_min=2", "r_min")],
)
def test_an_error_before_the_first_step_leaves_no_folder(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_tiny(tmp_path / "run", change)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["nonsense", "meta", "cuda", "cuda:99"])
def test_a_device_that_is_not_there(tmp_path: Path, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("it is")
    with pytest.raises(ValueError, match="device: expected"):
        train_tiny(tmp_path / "run", settings=replace(QUIET, device=device))
    assert not (tmp_path / "run").exists()


def test_a_name_for_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"recipe: expected a Recipe, such as .*, got 'recall'"):
        train("recall", tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"out: expected a new or empty folder.*--resume continues"):
        train_tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("quiet", [False, True])
def test_what_takes_long_says_so(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with waiting("compiling", quiet=quiet):
        pass
    assert ("compiling" in capsys.readouterr().out) is not quiet
