import dataclasses
import json
import math
from typing import Any, Literal

import pytest
import torch

import linrnn
from linrnn import recipes, tasks
from linrnn.recipes import ModelSettings, Recipe, Training
from linrnn.tasks import Description

# the paper's table of hyperparameters, its rings (for ListOps our own), and the base rates of lra.md:
# H, N, iterations, batch, rate, factor for Λ, B, γ, dropout, r_min, r_max, max phase, counters, both directions, mixing
PAPER: dict[str, tuple[Any, ...]] = {
    "scifar": (512, 384, 180_000, 50, 0.004, 0.25, 0.1, 0.9, 0.999, 6.283185307179586, 0, False, "glu"),
    "scifar-grey": (512, 384, 180_000, 50, 0.004, 0.25, 0.1, 0.9, 0.999, 6.283185307179586, 0, False, "glu"),
    "listops": (128, 256, 80_000, 32, 0.001, 0.5, 0.0, 0.0, 0.9999, 0.3141592653589793, 16, False, "glu"),
    "text": (256, 192, 50_000, 32, 0.004, 0.1, 0.1, 0.5, 0.9, 6.283185307179586, 0, False, "glu"),
    "retrieval": (128, 256, 100_000, 64, 0.002, 0.5, 0.1, 0.5, 0.9, 6.283185307179586, 0, False, "glu"),
    "pathfinder": (192, 256, 500_000, 64, 0.0045, 0.25, 0.0, 0.9, 0.999, 6.283185307179586, 0, True, "glu"),
    "pathx": (128, 256, 250_000, 32, 0.0018, 0.25, 0.0, 0.999, 0.9999, 0.3141592653589793, 0, True, "half_glu"),
}
for variant in (
    "scifar-grey",
    "listops-fresh",
    "retrieval-citations",
    "pathfinder-64",
):  # trained as what they are variants of
    PAPER[variant] = PAPER[variant.split("-")[0]]
SMALL = recipes.get("recall")


def test_the_built_in_recipe_comes_first_and_is_the_default() -> None:
    assert recipes.names()[0] == recipes.DEFAULT == "recall"
    assert set(recipes.names()) == {"recall", *PAPER}
    assert recipes.names() == tasks.names()


@pytest.mark.parametrize("name", PAPER)
def test_recipe_is_the_papers(name: str) -> None:
    recipe = recipes.get(name)
    model, training = recipe.model, recipe.training
    assert recipe.task == name
    options = [model.options[option] for option in ("r_min", "r_max", "max_phase", "counters", "bidirectional")]
    size = (model.d_model, model.d_state, training.steps, training.batch_size)
    rates = (training.learning_rate, training.recurrent_factor, model.dropout)
    assert (*size, *rates, *options, model.mixing) == PAPER[name]
    assert (model.depth, model.core, model.norm, model.pooling, len(model.options)) == (6, "lru", "batch", "mean", 5)
    assert (training.weight_decay, training.warmup, training.clip, training.seed) == (0.05, 0.1, None, 0)
    assert training.steps == 100 * training.eval_every


def test_an_unknown_name_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"name: expected 'recall' or .* got 'path-x'; did you mean 'pathx'\?"):
        recipes.get("path-x")


def test_the_table_cannot_be_changed_through_a_recipe() -> None:
    recipes.get("text").model.options["r_min"] = 0.1  # type: ignore[index]
    assert recipes.get("text").model.options["r_min"] == 0.5
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipes.get("text").task = "listops"  # type: ignore[misc]


def test_model_of_the_built_in_task() -> None:
    task = tasks.load("recall")
    config = SMALL.model.config(task)
    assert (config.vocabulary, config.channels, config.classes, config.documents) == (4, None, 3, 1)
    assert {f.name: getattr(config, f.name) for f in dataclasses.fields(SMALL.model)} == vars(SMALL.model)
    model = linrnn.Model(config)
    assert model(torch.from_numpy(task.test.inputs[:2, :20]).int()).shape == (2, 3)


@pytest.mark.parametrize("name", PAPER)
def test_every_recipe_makes_a_model(name: str) -> None:
    """Of its own core and options, at a small size, for the task's kind of input."""
    documents: Literal[1, 2] = 2 if name.startswith("retrieval") else 1
    pixels = {"channels": 3, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    kind: dict[str, Any] = (
        {"vocabulary": ("a", "b")} if name.split("-")[0] in ("listops", "text", "retrieval") else pixels
    )
    task = Description(name=name, note="", classes=2, documents=documents, **kind)
    settings = dataclasses.replace(recipes.get(name).model, d_model=4, d_state=20, depth=1)
    config = settings.config(task)
    assert (config.documents, config.channels) == (documents, kind.get("channels"))
    assert config.vocabulary == (2 if "vocabulary" in kind else None)
    core = linrnn.Model(config).blocks[0].core
    assert isinstance(core, linrnn.LRU)
    assert {option: getattr(core, option) for option in settings.options} == settings.options


@pytest.mark.parametrize("name", recipes.names())
def test_round_trip_through_json(name: str) -> None:
    recipe = recipes.get(name)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def changed(path: str, value: object) -> dict[str, Any]:
    """The small recipe as a dictionary, with one field set."""
    data = SMALL.to_dict()
    *sections, name = path.split(".")
    section = data
    for key in sections:
        section = section[key]
    section[name] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "error", "message"),
    [
        ("modle", {}, ValueError, r"recipe: expected .* got 'modle'; did you mean 'model'\?"),
        ("model.dstate", 3, ValueError, r"recipe\.model: .* got 'dstate'; did you mean 'd_state'\?"),
        ("training.epochs", 3, ValueError, r"recipe\.training: expected 'steps' or .* got 'epochs'"),
        ("task", 3, TypeError, "task: expected text, got 3"),
        ("model", None, TypeError, r"recipe\.model: expected a mapping of fields, got None"),
        ("model.d_state", 64.0, TypeError, r"d_state: expected an integer, got 64\.0"),
        ("model.depth", True, TypeError, "depth: expected an integer, got True"),
        ("model.d_model", 0, ValueError, "d_model: expected at least 1, got 0"),
        ("model.dropout", "0.1", TypeError, r"dropout: expected a number, got '0\.1'"),
        ("model.dropout", 1.0, ValueError, "dropout: expected a probability"),
        ("model.dropout", math.nan, ValueError, "dropout: expected a probability"),
        ("model.mixing", "full", TypeError, "mixing: expected 'glu' or 'half_glu' or 'half_glu2', got 'full'"),
        ("model.core", "lur", ValueError, r"core: expected 'lru' or .* got 'lur'; did you mean 'lru'\?"),
        ("model.options", [], TypeError, r"options: expected a Mapping, got \[\]"),
        ("model.options.rmin", 0.9, ValueError, r"options of 'lru': .* got 'rmin'; did you mean 'r_min'\?"),
        ("model.options.device", "cpu", ValueError, "options of 'lru': .* got 'device'"),
        ("model.options.r_min", "0.9", TypeError, r"options\.r_min: expected a number, got '0\.9'"),
        ("model.options.normalize", 1, TypeError, r"options\.normalize: expected true or false or 'fixed', got 1"),
        ("training.steps", True, TypeError, "steps: expected an integer, got True"),
        ("training.steps", 0, ValueError, "steps: expected at least 1, got 0"),
        ("training.batch_size", -1, ValueError, "batch_size: expected at least 1, got -1"),
        ("training.eval_every", 0, ValueError, "eval_every: expected at least 1, got 0"),
        ("training.learning_rate", 0.0, ValueError, r"learning_rate: expected a number above 0, got 0\.0"),
        ("training.learning_rate", math.inf, ValueError, "learning_rate: expected a number above 0, got inf"),
        ("training.weight_decay", math.nan, ValueError, "weight_decay: expected a number not below 0, got nan"),
        ("training.recurrent_factor", -0.5, ValueError, "recurrent_factor: expected a number not below 0"),
        ("training.warmup", 10, ValueError, "warmup: expected a part from 0 to 1, got 10"),
        ("training.clip", "none", TypeError, "clip: expected a number or none, got 'none'"),
        ("training.clip", 0, ValueError, "clip: expected a number above 0, got 0"),
        ("training.seed", -1, ValueError, "seed: expected from 0"),
    ],
)
def test_a_wrong_dictionary_is_a_clear_error(path: str, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Recipe.from_dict(changed(path, value))


def test_a_missing_field_is_named_and_defaults_are_filled_in() -> None:
    data = SMALL.to_dict()
    del data["training"]["warmup"], data["model"]["mixing"]
    assert Recipe.from_dict(data) == SMALL
    del data["training"]["steps"]
    with pytest.raises(ValueError, match=r"recipe\.training: expected the field 'steps', got only batch_size, "):
        Recipe.from_dict(data)
    with pytest.raises(ValueError, match=r"recipe: expected the field 'task', got only an empty one"):
        Recipe.from_dict({})


def test_integers_pass_for_numbers() -> None:
    assert Recipe.from_dict(changed("training.clip", 1)).training.clip == 1


def test_options_are_those_of_the_cores_signature() -> None:
    lru = {"r_min", "r_max", "max_phase", "counters", "parameterization", "normalize", "bidirectional"}
    assert recipes.core_options("lru").keys() == lru
    assert recipes.core_options("rnn").keys() == {"nonlinearity", "radius", "bidirectional"}
    model = ModelSettings(d_model=4, d_state=4, core="rnn", options={"nonlinearity": "relu"})
    assert model.options == {"nonlinearity": "relu"}
    with pytest.raises(TypeError, match=r"options\.nonlinearity: expected 'tanh' or 'relu' or 'linear', got 'gelu'"):
        ModelSettings(d_model=4, d_state=4, core="rnn", options={"nonlinearity": "gelu"})


def test_training_needs_its_fields() -> None:
    with pytest.raises(TypeError, match="missing"):
        Training(steps=10)  # type: ignore[call-arg]
