"""The paper's ladder from a dense RNN to the LRU: each row of its tables has a name.

A preset is a core with options. If its eigenvalues start on a tuned ring, the ring depends on the task. Sources, in
the appendix of the paper: the rows of Tables 6 (dense RNNs), 7 (diagonal ones) and 8 (γ), and the rings of Table 8.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from linrnn import recipes
from linrnn.cores import CORES
from linrnn.recipes import Recipe, core_defaults, core_options
from linrnn.util.errors import unknown, wrong_value
from linrnn.util.types import checked, fits

RING = ("r_min", "r_max", "max_phase", "counters")  # where eigenvalues start
SWITCHES = (*RING, "parameterization", "normalize", "nonlinearity", "radius")  # the options in which the rungs differ
DISK = {"r_min": 0.0, "r_max": 1.0, "max_phase": 2 * math.pi}

# "Stable Exp Param w/ Ring Init" in Table 8; phases in [0, 2π]. A variant of a task has the task's ring.
TUNED = {
    "scifar": (0.9, 0.99),
    "listops": (0.0, 1.0),  # the disk: here this rung equals the previous rung
    "text": (0.0, 0.9),
    "retrieval": (0.5, 0.9),
    "pathfinder": (0.9, 0.999),
    "pathx": (0.999, 0.9999),  # not given, since no model learned; the ring of "+γ Normalization"
    "recall": (0.999, 0.9999),  # not in the paper; the same
}


Sizes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Preset:
    """A core, its options, whether its ring is tuned to the task, and its sizes by task: fields of the model, and
    options."""

    core: str
    note: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = False
    sizes: Sizes = field(default_factory=dict)


def _diagonal(parameterization: str, note: str, **options: Any) -> Preset:
    return Preset("lru", note, {**DISK, "parameterization": parameterization, "normalize": False}, **options)


# Some eigenvalues of a dense A start outside the unit disk, and a linear RNN can overflow within 1,000 steps. So A is
# scaled into the disk on which the diagonal rungs start.
LADDER = {
    "rnn-relu": Preset("rnn", "dense, relu", {"nonlinearity": "relu"}),
    "rnn-tanh": Preset("rnn", "dense, tanh", {"nonlinearity": "tanh"}),
    "rnn-linear": Preset("rnn", "dense and linear", {"nonlinearity": "linear", "radius": 1.0}),
    "diag-real-imag": _diagonal("real_imag", "diagonal, λ learned by its real and imaginary parts"),
    "diag-exp": _diagonal("exp", "λ = exp(-ν + iθ)"),
    "diag-stable-exp": _diagonal("stable_exp", "ν = exp(ν_log), so that |λ| < 1"),
    "diag-ring": _diagonal("stable_exp", "λ starts on a ring that is tuned to the task", tuned=True),
    "lru": Preset("lru", "inputs normalized by γ; the recipe itself", tuned=True),
}


def _published(H: int, states: int, depth: int, **options: Any) -> dict[str, Any]:
    """Sizes as published: `states` counts both eigenvalues of a conjugate pair, of which a layer stores one."""
    return {"d_model": H, "d_state": states // 2, "depth": depth, **options}


# The command for each result in the S5 authors' repository (H, P, layers, blocks, smallest Δ), and the configuration
# of each task in the S4 authors' repository. Everything else, such as the direction, is the recipe's.
S5_SIZES = {
    "scifar": _published(512, 384, 6, blocks=3),
    "listops": _published(128, 16, 8, blocks=8),
    "text": _published(256, 192, 6, blocks=12),
    "retrieval": _published(128, 256, 6, blocks=16),
    "pathfinder": _published(192, 256, 6, blocks=8),
    "pathx": _published(128, 256, 6, blocks=16, dt_min=0.0001),
}
S4D_SIZES = {
    "scifar": _published(512, 64, 6),
    "listops": _published(256, 4, 6),
    "text": _published(256, 4, 6),
    "retrieval": _published(256, 4, 6),
    "pathfinder": _published(256, 64, 6),
    "pathx": _published(256, 64, 6, dt_min=0.0001),
}
FIRST_ORDER = {"input_multiplier": "first_order"}
SSMS = {
    "s4d-first-order": Preset("s4d", "S4D whose B̄ is Δ·B", FIRST_ORDER),
    "s4d-decoupled": Preset("s4d", "the same, with a separate Δ for B̄", {**FIRST_ORDER, "decoupled": True}),
    "s4d-published": Preset("s4d", "S4D-LegS at its published sizes", {"init": "legs"}, sizes=S4D_SIZES),
    "s5-published": Preset("s5", "S5 at its published sizes", sizes=S5_SIZES),
}
PRESETS = {**LADDER, **SSMS}


def names() -> list[str]:
    """All values of `--core`: the ladder, and the cores."""
    return list(dict.fromkeys([*PRESETS, *CORES]))


@checked
def apply(recipe: Recipe, name: str) -> Recipe:
    """The recipe with another core: a preset, or a plain core, which keeps the options that both cores have.

    The result holds the core and its options without the name of the preset, so that later versions of a preset cannot
    change it.

    Example:
        >>> apply(recipes.get("scifar"), "diag-ring").model.options["r_max"]
        0.99
    """
    if name not in names():
        raise unknown("model.core", name, names())
    if name in PRESETS and name in CORES and name != "lru":
        raise wrong_value("model.core", "a preset or a core", f"{name!r}, which names both: register another name")
    if name not in PRESETS:
        return _with(recipe, name, _known(recipe.model.options, name))
    preset = PRESETS[name]
    others = {key: value for key, value in recipe.model.options.items() if key not in SWITCHES}
    ring = {} if not preset.tuned else _lru_ring(recipe) if name == "lru" else _tuned_ring(recipe)
    fields, own = _sizes(name, recipe)
    changed = _with(recipe, preset.core, {**_known(others, preset.core), **preset.options, **ring, **own})
    return dataclasses.replace(changed, model=dataclasses.replace(changed.model, **fields))


@checked
def name_of(recipe: Recipe) -> str | None:
    """The first preset with this core and these options for the task; None if there is none."""
    base = recipes.get(recipe.task) if recipe.task in recipes.RECIPES else recipe
    return next((name for name in PRESETS if _fits(name, base) and _same(recipe, apply(base, name), name)), None)


def _fits(name: str, recipe: Recipe) -> bool:
    sizes = PRESETS[name].sizes
    return not sizes or recipe.task.partition("-")[0] in sizes


def _sizes(name: str, recipe: Recipe) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the model and the options that a preset sets for this task alone."""
    sizes = PRESETS[name].sizes
    if not sizes:
        return {}, {}
    task = recipe.task.partition("-")[0]
    if task not in sizes:
        raise wrong_value("model.core", f"{name!r} for {', '.join(sizes)} only", f"the task {recipe.task!r}")
    fields = {key: value for key, value in sizes[task].items() if hasattr(recipe.model, key)}
    return fields, {key: value for key, value in sizes[task].items() if key not in fields}


def _same(recipe: Recipe, other: Recipe, preset: str) -> bool:
    """Whether two recipes have the same core and options, and the sizes that the preset sets."""
    fields, _ = _sizes(preset, other)
    same = all(getattr(recipe.model, name) == value for name, value in fields.items())
    return same and _resolved(recipe) == _resolved(other)


def _with(recipe: Recipe, core: str, options: Mapping[str, Any]) -> Recipe:
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, core=core, options=dict(options)))


def _known(options: Mapping[str, Any], core: str) -> dict[str, Any]:
    known = core_options(core)
    return {key: value for key, value in options.items() if key in known and fits(value, known[key])}


def _lru_ring(recipe: Recipe) -> dict[str, Any]:
    """The ring of the task's own recipe, which has the LRU; for a task without a recipe, the ring of this recipe."""
    own = recipes.RECIPES.get(recipe.task, recipe)
    return {key: own.model.options[key] for key in RING if key in own.model.options}


def _tuned_ring(recipe: Recipe) -> dict[str, Any]:
    task = recipe.task.partition("-")[0]
    if task not in TUNED:
        return _lru_ring(recipe)
    r_min, r_max = TUNED[task]
    return {"r_min": r_min, "r_max": r_max}


def _resolved(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """The core and all its options, including the defaults."""
    return recipe.model.core, {**core_defaults(recipe.model.core), **recipe.model.options}
