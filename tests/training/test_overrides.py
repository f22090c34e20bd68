import dataclasses
from typing import Any

import pytest

from linrnn import recipes
from linrnn.training.overrides import override, with_core

RECIPE = recipes.get("pathx")


def read(path: str, recipe: recipes.Recipe) -> Any:
    value: Any = recipe
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("model.d_state", "64", 64),
        ("model.d_state", " 1_000 ", 1000),
        ("model.dropout", "0", 0.0),
        ("model.dropout", "1e-1", 0.1),
        ("model.mixing", "glu", "glu"),
        ("model.pooling", "none", "none"),
        ("model.options.r_min", "0.9", 0.9),
        ("model.options.bidirectional", "false", False),
        ("model.options.normalize", "True", True),
        ("model.options.normalize", "fixed", "fixed"),
        ("model.options.parameterization", "real_imag", "real_imag"),
        ("training.batch_size", "16", 16),
        ("training.clip", "1", 1.0),
        ("training.clip", "none", None),
        ("training.seed", "7", 7),
    ],
)
def test_one_field_is_set_with_its_type_and_nothing_else_changes(path: str, text: str, value: object) -> None:
    before = RECIPE.to_dict()
    recipe = override(RECIPE, [f"{path}={text}"])
    assert read(path, recipe) == value
    assert type(read(path, recipe)) is type(value)
    expected = RECIPE.to_dict()
    *sections, name = path.split(".")
    section = expected
    for key in sections:
        section = section[key]
    section[name] = value
    assert recipe.to_dict() == expected
    assert RECIPE.to_dict() == before


def test_none_is_no_text() -> None:
    changed = override(RECIPE, ["training.augment=operands"])
    assert override(changed, ["training.augment=none"]).training.augment is None


def test_many_at_once() -> None:
    recipe = override(RECIPE, ["model.d_state=64", "training.steps=5", "model.options.r_min=0.5", "training.steps=6"])
    assert (recipe.model.d_state, recipe.training.steps, recipe.model.options["r_min"]) == (64, 6, 0.5)
    assert override(RECIPE, []) == RECIPE


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.dstate=64", r"model\.dstate: .* did you mean 'model\.d_state'\?"),
        ("d_state=64", r"d_state: .* did you mean 'model\.d_state'\?"),
        ("r_min=0.5", r"r_min: .* did you mean 'model\.options\.r_min'\?"),
        ("modle.d_state=64", r"modle\.d_state: .* did you mean 'model\.d_state'\?"),
        ("training.learning-rate=1", r"did you mean 'training\.learning_rate'\?"),
        ("model.options.rmin=0.5", r"model\.options\.rmin: .* did you mean 'model\.options\.r_min'\?"),
        ("a=b", r"a: expected one of model\.d_model, .*training\.seed, .* got none of them$"),
        ("model.options.?=1", r"expected one of model\.options\.r_min, .*bidirectional, got none of them$"),
        ("training.foo=1", r"expected one of training\.steps, (training\.\w+, )+got none of them$"),
        ("task=listops", "task: expected one of"),
        ("model.options=5", r"model\.options: expected one of"),
        ("model.options.device=cpu", r"model\.options\.device: expected"),
        ("training.steps", r"'training\.steps': expected section\.field=value, .* got no '='"),
        ("=5", "expected one of"),
        ("", "got no '='"),
        ("training.steps=", "steps: expected an integer, got ''"),
        ("model.d_state=6.5", r"model\.d_state: expected an integer, got '6\.5'"),
        ("training.steps=many", r"training\.steps: expected an integer, got 'many'"),
        ("model.dropout=high", r"model\.dropout: expected a number, got 'high'"),
        ("model.dropout=nan", r"model\.dropout: expected a number, got 'nan'"),
        ("training.clip=inf", r"training\.clip: expected a number or none, got 'inf'"),
        ("model.mixing=full", r"model\.mixing: expected 'glu' or 'half_glu' or 'half_glu2', got 'full'"),
        ("model.options.normalize=yes", r"model\.options\.normalize: expected true or false or 'fixed', got 'yes'"),
        ("model.options.r_max=none", r"model\.options\.r_max: expected a number, got 'none'"),
        ("model.core=lur", r"model\.core: expected 'rnn-relu' or .* got 'lur'; did you mean 'lru'\?"),
        ("model.core=", r"model\.core: expected .* got ''"),
        ("model.depth=-1", "depth: expected at least 0, got -1"),
        ("training.steps=0", "steps: expected at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_a_clear_error(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(RECIPE, [assignment])


def test_another_core_keeps_the_options_that_it_knows() -> None:
    recipe = with_core(RECIPE, "rnn")
    assert recipe.model.options == {"bidirectional": True}
    assert recipe.model == dataclasses.replace(RECIPE.model, core="rnn", options={"bidirectional": True})
    assert (recipe.task, recipe.training) == (RECIPE.task, RECIPE.training)
    assert with_core(RECIPE, "lru") == RECIPE
    with pytest.raises(ValueError, match=r"did you mean 'rnn'\?"):
        with_core(RECIPE, "rn")


def test_a_core_may_be_a_rung_of_the_ladder() -> None:
    recipe = override(RECIPE, ["model.core=diag-ring", "model.options.r_min=0.5"])
    assert recipe.model.core == "lru"
    assert (recipe.model.options["normalize"], recipe.model.options["r_min"]) == (False, 0.5)
    assert with_core(recipe, "lru") == RECIPE


def test_the_core_is_set_before_its_options() -> None:
    recipe = override(RECIPE, ["model.options.nonlinearity=relu", "model.core=rnn"])
    assert recipe.model.core == "rnn"
    assert recipe.model.options == {"bidirectional": True, "nonlinearity": "relu"}
    with pytest.raises(ValueError, match=r"model\.options\.r_min: expected"):
        override(RECIPE, ["model.options.r_min=0.5", "model.core=rnn"])
