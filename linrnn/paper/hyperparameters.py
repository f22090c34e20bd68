"""The paper's hyperparameters, and where a recipe differs from them."""

import math
from typing import Any

from linrnn import recipes
from linrnn.paper import presets
from linrnn.recipes import ModelSettings, Recipe, Training

FREE = {
    "training.learning_rate",
    "training.seed",
    "training.eval_every",
    "training.target",
}  # the paper tuned the rate for every row

PAPER = "LRU (paper)"
FRESH = "-fresh"  # the suffix of a task with other training examples, and the same validation and test


def _row(
    *,
    H: int,
    N: int,
    iterations: int,
    batch: int,
    factor: float,
    dropout: float,
    ring: tuple[float, float],
    max_phase: float = 2 * math.pi,
    bidirectional: bool = False,
    mixing: str = "glu",
) -> dict[str, Any]:
    """A row of the table of hyperparameters with the LRU's ring, and the text of the appendix, by field."""
    return {
        "model.d_model": H,
        "model.d_state": N,
        "model.depth": 6,
        "model.options.r_min": ring[0],
        "model.options.r_max": ring[1],
        "model.options.max_phase": max_phase,
        "model.options.bidirectional": bidirectional,
        "model.mixing": mixing,
        "model.norm": "batch",
        "model.last_norm": False,
        "model.dropout": dropout,
        "training.steps": iterations,
        "training.batch_size": batch,
        "training.recurrent_factor": factor,
        "training.slow_B": True,
        "training.weight_decay": 0.05,
        "training.warmup": 0.1,
    }


# By task: Table tb:hparams, the rings of Table tb:effect_normalization_stddevs with the phases of its caption, and
# section "Architecture" of the appendix. Base rates were tuned and are not given.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "scifar": _row(H=512, N=384, iterations=180_000, batch=50, factor=0.25, dropout=0.1, ring=(0.9, 0.999)),
    "listops": _row(H=128, N=256, iterations=80_000, batch=32, factor=0.5, dropout=0.0, ring=(0.0, 0.99)),
    "text": _row(H=256, N=192, iterations=50_000, batch=32, factor=0.1, dropout=0.1, ring=(0.5, 0.9)),
    "retrieval": _row(H=128, N=256, iterations=100_000, batch=64, factor=0.5, dropout=0.1, ring=(0.5, 0.9)),
    "pathfinder": _row(
        H=192, N=256, iterations=500_000, batch=64, factor=0.25, dropout=0.0, ring=(0.9, 0.999), bidirectional=True
    ),
    "pathx": _row(
        H=128, N=256, iterations=250_000, batch=32, factor=0.25, dropout=0.0, ring=(0.999, 0.9999),
        max_phase=math.pi / 10, bidirectional=True, mixing="half_glu",
    ),
}  # fmt: skip


def recipe_of(task: str, preset: str = "lru") -> Recipe:
    """The paper's recipe for a row of its tables; what the paper leaves open has the default, or the task's rate.

    Args:
        task: a task of the paper, or a variant of such a task, as "scifar-grey".
        preset: a name that `linrnn train --core` takes.

    Example:
        >>> recipe_of("listops").model.options["r_max"]
        0.99
    """
    row = HYPERPARAMETERS[task.partition("-")[0]]
    ours = recipes.get(task).training
    parts: dict[str, dict[str, Any]] = {"model": {}, "model.options": {}, "training": {}}
    for field, value in row.items():
        section, _, name = field.rpartition(".")
        parts[section][name] = value
    lru = Recipe(
        task=task,
        model=ModelSettings(options=parts["model.options"], **parts["model"]),
        training=Training(learning_rate=ours.learning_rate, eval_every=ours.eval_every, **parts["training"]),
    )
    return lru if preset == "lru" else presets.apply(lru, preset)


def differences(recipe: Recipe, preset: str | None = None) -> dict[str, Any]:
    """The fields of a recipe that differ from the paper, with the paper's values; empty for a task that is not in the
    paper.

    The base rate, the seed and eval_every are free.

    Args:
        recipe: any.
        preset: the row of the paper's tables to compare with; by default the row of the recipe's core.

    Example:
        >>> differences(override(recipe_of("listops"), ["training.steps=10"]))
        {'training.steps': 80000}
    """
    if recipe.task.partition("-")[0] not in HYPERPARAMETERS or recipe.task not in recipes.RECIPES:
        return {}
    return different(recipe, recipe_of(recipe.task, preset or recipe.model.core))


def different(recipe: Recipe, wanted: Recipe) -> dict[str, Any]:
    """The fields of a recipe that differ from the wanted recipe, with the wanted values; None where the wanted recipe
    has no such field."""
    came, expected = flat(recipe), flat(wanted)
    return {
        name: expected.get(name)
        for name in dict.fromkeys([*expected, *came])
        if name not in FREE and not _same(came.get(name), expected.get(name))
    }


def flat(recipe: Recipe) -> dict[str, Any]:
    """All fields by their dotted names, with the options that the core takes by default."""
    options = {**recipes.core_defaults(recipe.model.core), **recipe.model.options}
    return {
        "task": recipe.task,
        **{f"model.{name}": value for name, value in vars(recipe.model).items() if name != "options"},
        **{f"model.options.{name}": value for name, value in options.items()},
        **{f"training.{name}": value for name, value in vars(recipe.training).items()},
    }


def row_name(recipe: Recipe) -> str:
    """The name of an LRU's row: "LRU (paper)", or how the recipe differs from the paper's, in words.

    Example:
        >>> row_name(override(recipe_of("listops"), ["model.options.counters=16", "training.steps=40000"]))
        'LRU + 16 counters, 40,000 of 80,000 steps'
    """
    theirs, mine = differences(recipe), flat(recipe)
    fresh = recipe.task.endswith(FRESH)
    if not theirs and not fresh:
        return PAPER
    words = ["fresh expressions"] if fresh else []
    if "model.options.counters" in theirs:
        words.insert(0, _counted(mine["model.options.counters"], "counter"))
    if {"model.options.r_min", "model.options.r_max"} & theirs.keys():
        words.append(f"ring [{_number(mine['model.options.r_min'])}, {_number(mine['model.options.r_max'])}]")
    told = {"model.options.counters", "model.options.r_min", "model.options.r_max", "training.steps"}
    words += [_words(field, mine.get(field)) for field in theirs if field not in told]
    if "training.steps" in theirs:
        words.append(f"{mine['training.steps']:,} of {theirs['training.steps']:,} steps")
    return f"LRU{' + ' if 'model.options.counters' in theirs else ', '}{', '.join(words)}"


def _words(field: str, value: Any) -> str:
    """A value that differs from the paper's, in words that are different for each value of the field."""
    known = {
        ("model.options.bidirectional", True): "both directions",
        ("model.options.bidirectional", False): "one direction",
        ("model.options.parameterization", "exp"): "ν and θ learned",
        ("model.options.parameterization", "real_imag"): "real and imaginary parts learned",
        ("model.options.normalize", False): "no γ",
        ("model.options.normalize", "fixed"): "γ from λ in each step",
        ("model.mixing", "glu"): "GLU",
        ("model.mixing", "half_glu"): "half GLU",
        ("model.mixing", "half_glu2"): "half GLU on the core's output",
        ("model.norm", "layer"): "layer norm",
        ("model.pooling", "all"): "mean over padding too",
        ("model.last_norm", True): "last norm",
        ("training.slow_B", False): "B at the full rate",
    }
    if isinstance(value, str | bool) and (field, value) in known:
        return known[field, value]
    name = field.rpartition(".")[2]
    if name == "augment" and value is not None:
        return ", ".join(recipes.AUGMENTATIONS[each] for each in value.split("+"))
    if name == "max_phase":
        return f"phases up to {_angle(value)}"
    if name == "depth":
        return _counted(value, "block")
    names = {
        "d_model": "H",
        "d_state": "N",
        "batch_size": "batch",
        "warmup": "warm-up",
        "clip": "gradient clipped at",
        "ema": "averaged weights",
    }
    return f"{names.get(name, name.replace('_', ' '))} {_number(value)}"


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return str(value)
    text = f"{value:.9g}"
    return text[1:] if text.startswith("0.") else text


def _angle(value: float) -> str:
    """A multiple or a fraction of π as text."""
    for n in (1, 2):
        if _same(value, n * math.pi):
            return f"{'' if n == 1 else n}π"
    part = round(math.pi / value) if value > 0 else 0
    return f"π/{part}" if part and _same(value, math.pi / part) else _number(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)
