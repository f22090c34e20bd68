"""A valid call of every public function and class, from which one argument at a time is changed."""

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import linrnn
from linrnn import objectives, recipes, tasks, training
from linrnn.cores import CORES, reduction
from linrnn.fast import Accelerated, accelerate, packs, reason
from linrnn.paper import presets
from linrnn.training.shrink import shrink

SIZES = {"d_model": 4, "d_state": 6}
KINDS: dict[str, dict[str, Any]] = {
    "classification": {},
    "regression": {"targets": np.arange(40.0).reshape(20, 2)},
    "multi-label": {"targets": np.arange(60).reshape(20, 3) % 2},
    "language": {"inputs": np.arange(100).reshape(20, 5) % 4, "targets": None},
}
EXTRA: dict[str, dict[str, Any]] = {"s5": {"blocks": 2}, "rnn": {"radius": 0.9}}


@dataclass
class Call:
    """A call that is right.

    Attributes:
        name: of the function, for messages.
        function: what is called with keyword arguments.
        arguments: makes them, the same each time.
        fixed: arguments that are not changed.
        also: other words by which messages may call an argument.
        paths: arguments for which any text is a path.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    fixed: tuple[str, ...] = ()
    also: dict[str, str] = field(default_factory=lambda: {"splits": "fractions", "labels": "targets"})
    paths: tuple[str, ...] = ()


def seeded(make: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        torch.manual_seed(0)
        return make()

    return run


def defaults(function: Any, **given: Any) -> dict[str, Any]:
    """The arguments of a call: the defaults of the function, and what is given."""
    parameters = inspect.signature(function).parameters.values()
    known = {p.name: p.default for p in parameters if p.default is not p.empty}
    return known | given


def layer(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    make: Any = CORES[name]
    return make(**SIZES, **options)


def config(**changes: Any) -> linrnn.ModelConfig:
    sizes: dict[str, Any] = {"channels": 3, "classes": 2, "d_model": 4, "d_state": 6, "depth": 2}
    return linrnn.ModelConfig(**(sizes | changes))


def model(**changes: Any) -> linrnn.Model:
    torch.manual_seed(0)
    return linrnn.Model(config(**changes)).eval()


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"inputs": rng.normal(size=(20, 5, 2)), "targets": np.arange(20) % 2, "kind": "classification"} | changes


def task() -> linrnn.Task:
    return linrnn.Task.from_arrays(**arrays())


def calls() -> Iterator[Call]:
    """All of them."""
    u, lam = torch.randn(2, 5, 3, dtype=torch.complex64), torch.full((3,), 0.5 + 0.1j)
    yield Call("scan", linrnn.scan, lambda: {
        "u": u.clone(), "lam": lam.clone(), "initial": u[:, 0].clone(), "reverse": False,
        "resets": torch.arange(10).view(2, 5) % 3 == 1, "group": None,
    })  # fmt: skip
    yield Call("scan, varying", linrnn.scan, lambda: {
        "u": u.clone(), "lam": u / 4, "initial": u[:, 0].clone(), "reverse": True, "resets": None, "group": None,
    })  # fmt: skip
    planes = torch.view_as_real(u).mT.contiguous()
    yield Call("scan_planes", linrnn.scan_planes, lambda: {
        "u": planes.clone(), "lam": planes[0, 0] / 4, "initial": planes[:, 0].clone(), "reverse": True,
        "resets": torch.arange(10).view(2, 5) % 3 == 1, "group": None,
    })  # fmt: skip
    yield Call("scan_planes, varying", linrnn.scan_planes, lambda: {
        "u": planes.clone(), "lam": planes / 4, "initial": planes[:, 0].clone(), "reverse": False, "resets": None,
        "group": None,
    })  # fmt: skip
    for name, core in CORES.items():
        yield from _of_core(name, core)
    yield Call("diagonalize", linrnn.diagonalize, lambda: {"rnn": layer("rnn", nonlinearity="linear")})
    yield Call("real_form", linrnn.real_form, lambda: {"lru": layer("lru")})
    yield Call("register_core", linrnn.register_core, lambda: {"name": "fuzzed", "core": CORES["lru"]})
    yield from _of_models()
    yield from _of_stacks()
    yield from _of_streams()
    yield from _of_tasks()
    yield from _of_training()
    yield from _of_memory()
    yield from _of_smaller()


def _of_core(name: str, core: Any) -> Iterator[Call]:
    x = torch.randn(2, 5, 4)
    yield Call(core.__name__, core, lambda: defaults(core, **SIZES) | EXTRA.get(name, {}))
    one = layer(name)
    state = one(x)[1].detach()
    resets = torch.arange(10).view(2, 5) % 3 == 1 if one.takes_resets else None
    yield Call(f"{core.__name__}.forward", one.forward, lambda: {
        "u": x.clone(), "state": state.clone(), "lengths": torch.tensor([5, 3]), "resets": resets, "group": None,
        "dt": torch.full((2, 5), 1.5) if one.takes_dt else None,
    })  # fmt: skip
    yield Call(f"{core.__name__}.step", one.step, lambda: {
        "u": x[:, 0].clone(), "state": state.clone(), "dt": None,
    })  # fmt: skip
    yield Call(f"{core.__name__}.initial_state", one.initial_state, lambda: {"batch": 2})
    if callable(getattr(type(one), "kernel", None)):
        yield Call(f"{core.__name__}.kernel", one.kernel, lambda: {"length": 5})
    if one.takes_both_directions:
        both = layer(name, bidirectional=True)
        yield Call(f"{core.__name__}.forward, bidirectional", both.forward, lambda: {
            "u": x.clone(), "state": None, "lengths": [5, 3], "resets": None, "group": None,
        })  # fmt: skip


def _of_models() -> Iterator[Call]:
    fields = {f: getattr(config(), f) for f in config().__dataclass_fields__}
    yield Call("ModelConfig", lambda **given: linrnn.Model(linrnn.ModelConfig(**given)), lambda: dict(fields))
    yield Call("ModelConfig, tokens", lambda **given: linrnn.Model(linrnn.ModelConfig(**given)), lambda: fields | {
        "channels": None, "vocabulary": 5, "pooling": "last", "options": {"r_min": 0.5}, "documents": 2,
    })  # fmt: skip
    yield Call("Model", linrnn.Model, lambda: {"config": config()})
    kinds: dict[str, tuple[dict[str, Any], Any]] = {
        "numbers": ({}, torch.randn(2, 5, 3)),
        "tokens": (
            {"channels": None, "vocabulary": 7, "norm": "layer", "pooling": "none"},
            torch.arange(10).view(2, 5) % 7,
        ),
        "both": ({"vocabulary": 7, "pooling": "last"}, torch.cat([torch.randn(2, 5, 3), torch.ones(2, 5, 1)], 2)),
    }
    for name, (changes, inputs) in kinds.items():
        one = model(**changes)
        resets = torch.arange(10).view(2, 5) % 3 == 1 if one.config.pooling == "none" else None
        yield Call(f"Model.forward, {name}", one.forward, lambda inputs=inputs, resets=resets: {  # type: ignore[misc]
            "inputs": inputs.clone(), "lengths": torch.tensor([5, 3]), "resets": resets,
        })  # fmt: skip
        with torch.no_grad():
            _, state = one.chunk(inputs)
        yield Call(f"Model.chunk, {name}", one.chunk, lambda inputs=inputs, state=state: {  # type: ignore[misc]
            "inputs": inputs.clone(), "state": state, "lengths": [5, 3],
        })  # fmt: skip
        yield Call(f"Model.step, {name}", one.step, lambda inputs=inputs, state=state: {  # type: ignore[misc]
            "inputs": inputs[:, 0].clone(), "state": state,
        })  # fmt: skip
    pairs = model(documents=2)
    yield Call("Model.forward, pairs", pairs.forward, lambda: {
        "inputs": torch.ones(2, 2, 5, 3), "lengths": torch.tensor([[5, 3], [1, 2]]), "resets": None,
    })  # fmt: skip
    yield Call("Model.initial_state", model().initial_state, lambda: {"batch": 2})
    yield Call("accelerate", accelerate, lambda: {"model": model(), "compile": False})
    yield Call("reason", reason, lambda: {"model": model(), "x": torch.zeros(2, 5, 4)})
    yield Call("packs", packs, lambda: {"model": model()})
    fast = accelerate(model(), compile=False)
    yield Call("Accelerated", Accelerated, lambda: {"model": model(), "compile": False, "fuse": True, "chunk": 8})
    yield Call("Accelerated.forward", fast.forward, lambda: {
        "inputs": torch.ones(2, 5, 3), "lengths": torch.tensor([5, 3]), "resets": None,
    })  # fmt: skip
    yield Call("param_groups", linrnn.param_groups, lambda: {
        "module": model(), "lr": 0.1, "weight_decay": 0.1, "recurrent_factor": 0.5,
    })  # fmt: skip


def _of_stacks() -> Iterator[Call]:
    x = torch.randn(2, 5, 3)
    for name in ("LRU", "S5", "S4D"):
        cls = getattr(linrnn.nn, name)
        yield Call(f"nn.{name}", cls, lambda cls=cls: defaults(cls, input_size=3, hidden_size=4, num_layers=2))  # type: ignore[misc]
        torch.manual_seed(0)
        one = cls(3, 4, 2, batch_first=True).eval()
        hx = one(x)[1].detach()
        yield Call(f"nn.{name}.forward", one.forward, lambda hx=hx: {"input": x.clone(), "hx": hx.clone()})  # type: ignore[misc]
        yield Call(f"nn.{name}.initial_state", one.initial_state, lambda: {"batch": 2})
    one = linrnn.nn.LRU(3, 4, batch_first=True, bidirectional=True, proj_size=2).eval()
    hx = one(x)[1].detach()
    yield Call("nn.LRU.forward, both directions", one.forward, lambda: {"input": x.clone(), "hx": hx.clone()})


def _of_streams() -> Iterator[Call]:
    yield Call("Stream", linrnn.Stream, lambda: {"model": model(), "batch": 2, "dtype": None})
    yield Call("Stream, layer", linrnn.Stream, lambda: {"model": layer("s4d"), "batch": 2, "dtype": None})
    stream = linrnn.Stream(model(), 2)
    yield Call("Stream.step", stream.step, lambda: {"inputs": torch.ones(2, 3)})
    yield Call("Stream.reset", stream.reset, lambda: {"which": torch.tensor([True, False])})
    start = copy.deepcopy(stream.state)
    yield Call("Stream.state", lambda state: setattr(stream, "state", state), lambda: {"state": start})
    single = linrnn.Stream(layer("lru"), 2)
    yield Call(
        "Stream.state, layer", lambda state: setattr(single, "state", state), lambda: {"state": torch.ones(2, 2, 6)}
    )
    symbols = linrnn.Stream(model(channels=None, vocabulary=7), 2)
    yield Call("Stream.step, tokens", symbols.step, lambda: {"inputs": torch.ones(2, dtype=torch.int64)})
    learns = layer("lru")
    yield Call("Learner", linrnn.online.Learner, lambda: {
        "model": learns, "optimizer": torch.optim.SGD(learns.parameters(), 0.1), "loss": None, "batch": 2,
    })  # fmt: skip
    learner = linrnn.online.Learner(layer("lru"), batch=2)
    yield Call("Learner.step", learner.step, lambda: {"inputs": torch.ones(2, 4), "target": torch.zeros(2, 4)})


def _of_tasks() -> Iterator[Call]:
    cls = linrnn.Task.from_arrays
    rng = np.random.default_rng(0)
    yield Call("Task.from_arrays", cls, lambda: defaults(cls, **arrays(lengths=np.arange(20) % 5 + 1)))
    yield Call("Task.from_arrays, tokens", cls, lambda: defaults(cls, **arrays(
        inputs=np.arange(100).reshape(20, 5) % 4, vocabulary=4, labels=["a", "b"],
    )))  # fmt: skip
    yield Call("Task.from_arrays, language", cls, lambda: defaults(cls, **arrays(
        inputs=np.arange(100).reshape(20, 5) % 4, targets=None, kind="language",
    )))  # fmt: skip
    yield Call("Task.from_arrays, regression", cls, lambda: defaults(cls, **arrays(
        targets=rng.normal(size=(20, 2)), kind="regression", channels=["a", "b"], splits=[10, 5, 5],
    )))  # fmt: skip
    yield Call("Task.from_arrays, forecast", cls, lambda: defaults(cls, **arrays(
        targets=rng.normal(size=(20, 3, 2)), kind="forecast", period=2, relative=True,
    )))  # fmt: skip
    yield Call("Task.from_arrays, multi-label", cls, lambda: defaults(cls, **arrays(
        targets=rng.integers(2, size=(20, 3)), kind="multi-label", tokens=np.arange(100).reshape(20, 5) % 4,
    )))  # fmt: skip
    yield Call("Task.from_arrays, per-step", cls, lambda: defaults(cls, **arrays(
        targets=rng.normal(size=(20, 5, 1)), kind="per-step",
        splits={"train": np.arange(10), "validation": np.arange(10, 15), "test": np.arange(15, 20)},
    )))  # fmt: skip
    yield Call("tasks.Split", tasks.Split, lambda: {
        "inputs": np.zeros((4, 5, 1)), "lengths": np.full(4, 5), "targets": np.arange(4) % 2,
    })  # fmt: skip
    fields = vars(task())
    yield Call("Task", lambda **given: linrnn.Task(**given).check(), lambda: dict(fields))
    names = task().description()
    yield Call("tasks.Description", tasks.Description, lambda: dict(names))
    yield Call("tasks.restore_description", tasks.restore_description, lambda: {"data": dict(names)})
    yield Call("tasks.task_description", tasks.task_description, lambda: {"task": task()})
    yield Call("tasks.load", tasks.load, lambda: {"name": "recall"})
    source = {"name": "fuzzed", "note": "", "examples": (1, 1, 1), "origin": "", "licence": "", "load": task}
    yield Call("tasks.Source", tasks.Source, lambda: dict(source), fixed=tuple(source))  # a table of the project's
    yield Call("tasks.register", tasks.register, lambda: {"source": tasks.Source(**source)})  # type: ignore[arg-type]
    yield Call(
        "register_task", linrnn.register_task, lambda: {"name": "fuzzed", "load": task, "recipe": "listops", "note": ""}
    )
    yield Call("recipes.get", recipes.get, lambda: {"name": "recall"})
    yield Call("recipes.suggest", recipes.suggest, lambda: {"task": task()})
    recipe = recipes.get("recall")
    yield Call("recipes.Recipe", recipes.Recipe, lambda: dict(vars(recipe)))
    yield Call("recipes.ModelSettings", recipes.ModelSettings, lambda: dict(vars(recipe.model)))
    yield Call("recipes.Training", recipes.Training, lambda: dict(vars(recipe.training)))
    yield Call(
        "recipes.Recipe.from_dict",
        recipes.Recipe.from_dict,
        lambda: {"data": recipe.to_dict()},
        also={"data": "recipe"},
    )
    yield Call("presets.apply", presets.apply, lambda: {"recipe": recipe, "name": "lru"}, also={"name": "model.core"})
    yield Call("presets.name_of", presets.name_of, lambda: {"recipe": recipe})


def _of_training() -> Iterator[Call]:
    yield Call("training.Settings", training.Settings, lambda: dict(vars(training.Settings())))
    yield Call(
        "objectives.of", objectives.of, lambda: {"task": task(), "options": objectives.Options(), "device": "cpu"}
    )
    yield Call("objectives.Options", objectives.Options, lambda: dict(vars(objectives.Options())))
    yield Call("objectives.Metric", objectives.Metric, lambda: dict(vars(objectives.ACCURACY)))
    for kind, targets in KINDS.items():
        yield from _of_objective(objectives.of(linrnn.Task.from_arrays(**arrays(kind=kind, **targets))))


def _of_objective(objective: objectives.Objective) -> Iterator[Call]:
    count = objective.width
    for method in ("loss", "totals"):
        more = {"counted": torch.tensor([True, False])} if method == "totals" else {}
        shape = (2, 5) if objective.stepwise else (2,)
        numbers: dict[str, tuple[int, ...]] = {"Numbers": (2, count), "Labels": (2, count)}
        of = type(objective).__name__
        targets = torch.ones(numbers[of]) if of in numbers else torch.ones(shape, dtype=torch.int64)
        lengths = torch.tensor([5, 3]) if objective.stepwise else None

        def given(
            more: Any = more, targets: Any = targets, lengths: Any = lengths, shape: Any = shape
        ) -> dict[str, Any]:
            return {
                "outputs": torch.zeros(*shape, count), "targets": targets.clone(), "lengths": lengths, **more
            }  # fmt: skip

        yield Call(f"{of}.{method}", getattr(objective, method), given)


def _of_memory() -> Iterator[Call]:
    cls = linrnn.agents.Memory
    yield Call("agents.Memory", cls, lambda: defaults(cls, d_model=4, d_state=6, options={"r_min": 0.5}))
    x, starts = torch.randn(2, 5, 4), torch.arange(10).view(2, 5) % 3 == 1
    for core in ("lru", "rglru"):
        torch.manual_seed(0)
        one = cls(4, 6, depth=2, core=core)
        state = one(x)[1].detach()
        yield Call(f"Memory.forward, {core}", one.forward, lambda state=state: {  # type: ignore[misc]
            "x": x.clone(), "state": state.clone(), "is_init": starts.clone(),
        })  # fmt: skip
        yield Call(f"Memory.step, {core}", one.step, lambda state=state: {  # type: ignore[misc]
            "x": x[:, 0].clone(), "state": state.clone(), "is_init": starts[:, 0].clone(),
        })  # fmt: skip
    yield Call("Memory.initial_state", one.initial_state, lambda: {"batch": 2})


def _of_smaller() -> Iterator[Call]:
    yield Call("reduce", reduction.reduce, lambda: {"layer": layer("lru"), "states": 3, "by": "balanced"})
    yield Call("reduce_to", reduction.reduce_to, lambda: {"layer": layer("lru"), "error": 0.1})
    yield Call("shrink", shrink, lambda: {"model": model(), "states": 3, "error": None, "by": "balanced"})
