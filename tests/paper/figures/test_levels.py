import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest

from linrnn.paper.figures import levels
from linrnn.tasks.base import silent
from linrnn.tasks.expressions import MAX, MED, MIN, SM
from linrnn.tasks.generators import trees

VALUE: dict[int, Callable[[tuple[int, ...]], int]] = {
    MIN: min,
    MAX: max,
    MED: lambda values: int(np.median(values)),
    SM: lambda values: sum(values) % 10,
}


@pytest.mark.parametrize("token", VALUE)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_an_operator_of_uncertain_operands(token: int, n: int) -> None:
    """Against all values that the operands can have, one by one."""
    rng = np.random.default_rng(n)
    operands = rng.dirichlet(np.full(10, 0.3), n)
    operands[0] = np.eye(10)[7]  # one is known
    expected = np.zeros(10)
    for values in itertools.product(range(10), repeat=n):
        expected[VALUE[token](values)] += operands[range(n), values].prod()
    np.testing.assert_allclose(levels.of_operator(token, operands), expected, atol=1e-12)


def test_who_knows_all_is_sure_and_right() -> None:
    inputs, lengths, values = trees.grow(1, 0, 20, 120)
    for tokens, length, value in zip(inputs[:40], lengths, values, strict=False):
        predicted = levels.predict(levels.parse(tokens[: length - 1]), levels=10, operators=False)
        np.testing.assert_allclose(predicted, np.eye(10)[value], atol=1e-12)


def test_levels_are_known_one_by_one() -> None:
    """[MAX 3 [MIN 8 5 ] ]"""
    root = levels.Operator(MAX, [3, levels.Operator(MIN, [8, 5])])
    low, any_operator = levels.unknown(MIN, 2), np.mean([levels.unknown(token, 2) for token in VALUE], 0)
    np.testing.assert_allclose(levels.predict(root, 0, True), levels.unknown(MAX, 1))
    for operators, other in ((True, low), (False, any_operator)):
        expected = np.where(np.arange(10) == 3, other[:4].sum(), other) * (np.arange(10) >= 3)
        np.testing.assert_allclose(levels.predict(root, 1, operators), expected)
    np.testing.assert_allclose(levels.predict(root, 2, False), np.eye(10)[5], atol=1e-12)


@pytest.mark.parametrize("token", VALUE)
def test_an_operator_of_which_nothing_is_known(token: int) -> None:
    """Against trees grown by the rules, of any length."""
    inputs, _, values = (
        np.concatenate(part) for part in zip(*(trees.grow(3, block, 3, 1999) for block in range(20)), strict=True)
    )
    chosen = values[inputs[:, 0] == token]
    drawn, expected = np.bincount(chosen, minlength=10) / len(chosen), levels.unknown(token, 1)
    assert (np.abs(drawn - expected) < 5 * np.sqrt(expected / len(chosen)) + 0.01).all()  # the longest were given up


def test_a_perfect_memory_finds_all_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "MEMORY", (3, 10**9))
    monkeypatch.setattr(levels, "PHASES", (0.0, 1.0))
    inputs, lengths, _ = trees.grow(5, 0)
    found = levels.operands_found(inputs[:20], lengths[:20])
    assert found.shape == (2, 2)
    assert found[0, 1] == 1
    assert found[0, 0] < 0.3
    assert found[1].max() < 0.3


def test_the_claims_hold() -> None:
    result = levels.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 4
    json.dumps(result.numbers, allow_nan=False)
    accuracies = list(result.numbers["accuracy"].values())
    assert accuracies == sorted(accuracies)


def test_a_model_that_knows_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "KNOWN", {name: (deep + 1, of) for name, (deep, of) in levels.KNOWN.items()})
    findings = levels.run(quick=True, seed=0, progress=silent).findings
    assert [finding.holds for finding in findings] == [False, False, True, True]
