"""Every public function with one wrong argument: an error that names it, or the right result."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from linrnn import recipes, tasks
from linrnn.cores import CORES
from tests.faults.calls import mutations, stored, valid
from tests.faults.calls.definitions import expected
from tests.faults.calls.valid import Call
from tests.helpers import relative_error
from tests.training.helpers import tiny_world

CALLS = {call.name: call for call in valid.calls()}
REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
FREE_NAMES = ("fuzzed",)
WITH_FILES = "test_one_wrong_argument_of_calls_with_files"
ELSEWHERE = {  # public names that are not called with arguments, or that write files, and the tests that call them
    "Core": "tests/cores/test_own_core.py",
    "ModelState": "of Model.step",
    "Run": WITH_FILES,
    "load": WITH_FILES,
    "resume": WITH_FILES,
    "train": "test_wrong_arguments_of_training",
    "warm_up": "without arguments",
    "names": "without arguments",
    "Interface": "a part of ModelConfig",
    "Architecture": "a part of ModelConfig",
    "OnHub": "tests/test_hub.py",
    "onnx": "test_wrong_arguments_of_exports",
    "torch": "test_wrong_arguments_of_exports",
    "c": "test_wrong_arguments_of_exports",
    "Objective": "the base of Classes",
    "Block": "made by Model",
    "BatchNorm": "made by Model",
    "last_valid": "for subclasses of Core",
    "Memory": "tests/agents/test_memory.py",
    "MemoryModule": "tests/agents/test_torchrl.py",
    "Shrunk": "of shrink",
    "shrink_run": "tests/training/test_shrink.py",
    "Processes": "tests/training/test_processes.py",
    "InterruptedRun": "an exception",
    "NonFiniteLossError": "an exception",
    "TimeIsUp": "an exception",
    "Learned": "of Learner.step",
    "open_data": WITH_FILES,
    "read_new": WITH_FILES,
    "New": "of read_new",
    "format_of": WITH_FILES,
    "options_of": WITH_FILES,
    "predict": WITH_FILES,
    "Predictions": "of predict",
    "generate": WITH_FILES,
    "Suggestion": "of recipes.suggest",
    "Preset": "a table of the package",
    "figure": "tests/paper/figures",
    "Experiment": "tests/paper/figures",
    "Finding": "tests/paper/figures",
    "Result": "tests/paper/figures",
}


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    yield
    _forget()


def _forget() -> None:
    for name in FREE_NAMES:
        CORES.pop(name, None)
        tasks.TASKS.pop(name, None)
        recipes.RECIPES.pop(name, None)


def changes(call: Call) -> list[tuple[str, str, mutations.Change]]:
    """(argument, name of the change, changed value) of a call."""
    return [
        (argument, name, change)
        for argument, value in call.arguments().items()
        if argument not in call.fixed
        for name, change in mutations.of(value)
        if argument not in call.paths or name not in ("text", "no-text")
    ]


def attempt(call: Call, given: dict[str, Any]) -> Any:
    _forget()
    torch.manual_seed(0)
    return call.function(**given)


def check(call: Call, argument: str, changed: Any) -> str:
    """What came of a call with one changed argument; an AssertionError where it is neither of the two that may come."""
    given = call.arguments()
    arrays = isinstance(given[argument], Tensor | np.ndarray | tuple) and isinstance(
        changed, Tensor | np.ndarray | list | tuple
    )
    given[argument] = changed
    refused: Exception | None = None
    try:
        result = attempt(call, given)
    except (TypeError, ValueError) as error:
        refused = error
    if refused is not None:
        words = list(given) if arrays else [argument]  # shapes that do not fit together name either of the two
        words += [call.also[argument]] if argument in call.also else []
        said = str(refused)
        assert any(re.search(rf"\b{re.escape(word)}\b", said) for word in words), f"{argument} is not in: {said}"
        assert "expected" in said
        return "refused"
    right = expected(call.name, given)
    if right is not None:
        coarse = given["u"].dtype in (torch.bfloat16, torch.float16)
        for came, wanted in zip(result, right, strict=True):
            if not np.isfinite(wanted).all():
                continue
            assert relative_error(came, wanted) < (1e-2 if coarse else 1e-5)
        return "right"
    return "accepted"


@pytest.mark.parametrize("name", CALLS)
def test_the_call_itself_is_right(name: str) -> None:
    attempt(CALLS[name], CALLS[name].arguments())


@pytest.mark.parametrize("name", CALLS)
def test_one_wrong_argument(name: str) -> None:
    """All changes of all arguments, one at a time."""
    call, failures, tries = CALLS[name], [], 0
    if call.fixed:
        return
    for argument, what, change in changes(call):
        tries += 1
        try:
            check(call, argument, change())
        except Exception as error:
            failures.append(f"{argument} {what}: {type(error).__name__}: {error}"[:200])
    assert tries
    assert not failures, "\n".join([f"{len(failures)} of {tries}", *failures])


def test_one_wrong_argument_of_calls_with_files(tmp_path: Path) -> None:
    failures, tries = [], 0
    with tiny_world():
        for call in stored.calls(tmp_path):
            attempt(call, call.arguments())
            for argument, what, change in changes(call):
                tries += 1
                try:
                    check(call, argument, change())
                except Exception as error:
                    failures.append(f"{call.name}: {argument} {what}: {type(error).__name__}: {error}"[:200])
    assert not failures, "\n".join([f"{len(failures)} of {tries}", *failures])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any small tensor."""
    shape = draw(st.lists(st.integers(0, 6), max_size=4))
    dtype = draw(st.sampled_from([torch.float32, *mutations.DTYPES]))
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 3
    x = numbers.to(dtype)
    kind = draw(st.sampled_from(["dense"] * 6 + ["meta", "sparse", "strided"]))
    if kind == "meta":
        return x.to("meta")
    if kind == "sparse":
        return numbers.to_sparse().to(dtype) if x.dim() else x  # not every dtype can be searched for zeros
    return x.mT if kind == "strided" and x.dim() > 1 else x


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    tensors(),
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(st.one_of(st.integers(-2, 6), st.floats(), st.text(max_size=2)), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from(mutations.DTYPES),
)


def fuzz(draw: st.DataObject) -> None:
    call = CALLS[draw.draw(st.sampled_from([name for name, call in CALLS.items() if not call.fixed]))]
    names = [name for name in call.arguments() if name not in call.fixed]
    argument = draw.draw(st.sampled_from(names))
    check(call, argument, draw.draw(ANYTHING))


QUIET = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@settings(QUIET, max_examples=500)
@given(st.data())
def test_any_argument(data: st.DataObject) -> None:
    fuzz(data)


@pytest.mark.slow
@settings(QUIET, max_examples=30_000, derandomize=False)
@given(st.data())
def test_any_argument_at_length(data: st.DataObject) -> None:
    fuzz(data)


@pytest.mark.skipif(not REFERENCE.exists(), reason="only a checkout has the docs")
def test_every_public_name_is_called() -> None:
    called = {word for call in CALLS.values() for word in re.split(r"[ ,.]+", call.name)}
    documented = [
        line.split()[1].rpartition(".")[2]
        for page in REFERENCE.glob("*.md")
        for line in page.read_text().splitlines()
        if line.startswith(":::")
    ]
    import linrnn

    public = {*documented, *(name for name in linrnn.__all__ if not inspect.ismodule(getattr(linrnn, name)))}
    for module in (linrnn.agents, linrnn.export, linrnn.nn, linrnn.online, linrnn.tasks, linrnn.training):
        public |= set(module.__all__)
    assert {name for name in public if name not in called and name not in ELSEWHERE} == set()
    assert {name for name in ELSEWHERE if name not in public} == set()


TOO_LARGE: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: CORES["lru"](2**40, 4), "d_model", "1,099,511,627,776"),
    (lambda: CORES["s5"](4, 10**6), "d_state", "1,000,000"),
    (lambda: CORES["lru"](4, 4).initial_state(2**42), "batch", "4,398,046,511,104"),
    (lambda: valid.layer("lru").kernel(2**42), "length", "4,398,046,511,104"),
    (lambda: valid.model(depth=2**40), "depth", "1,099,511,627,776"),
    (lambda: valid.model(classes=2**45), "classes", "35,184,372,088,832"),
]


@pytest.mark.parametrize(("make", "name", "size"), TOO_LARGE)
def test_a_size_that_fits_into_no_memory(make: Callable[[], Any], name: str, size: str) -> None:
    said = f"{name}: expected a size that fits into memory, got {size}, which asks for [0-9,]+ bytes"
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("name", CORES)
def test_layers_on_meta(name: str) -> None:
    """A layer on `meta` says what shapes come, or that it cannot."""
    make: Any = CORES[name]
    y, _ = make(4, 6, device="meta")(torch.zeros(2, 5, 4, device="meta"))
    assert y.is_meta
    assert y.shape == (2, 5, 4)


def test_wrong_arguments_of_training(tmp_path: Path) -> None:
    import linrnn

    recipe = recipes.get("recall")
    for argument, value in {"recipe": 3, "task": "x", "settings": "fast", "out": None}.items():
        given: dict[str, Any] = {"recipe": recipe, "out": tmp_path / "run", argument: value}
        with pytest.raises((TypeError, ValueError), match=f"{argument}: expected"):
            linrnn.train(**given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["onnx", "torch", "c"])
@pytest.mark.parametrize(("argument", "value"), [("model", 3), ("model", None), ("path", None), ("path", 3)])
def test_wrong_arguments_of_exports(tmp_path: Path, name: str, argument: str, value: Any) -> None:
    import linrnn

    given = {"model": valid.layer("lru"), "path": tmp_path / "it.pt2"} | {argument: value}
    with pytest.raises((TypeError, ValueError), match=f"{argument}: expected"):
        getattr(linrnn.export, name)(**given)
