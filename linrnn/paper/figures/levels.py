"""What an accuracy on ListOps means: how much of an expression a model must know, and how long it must remember.

This analysis is not in the paper; it explains the paper's numbers on ListOps. A predictor knows the outermost levels of
an expression, and assumes the task's average for any deeper operator. At level 0 it knows the operator of the root, at
level 1 also the root's own digits, and then the operators next to these digits, which gives the accuracy of the paper's
models.

To find the operands of the root, a model must know how many brackets are open, from the first step to the last. A
linear state can count them: d_k is 1 at an operator and -1 at a closing bracket, and x_k = λ·x_{k-1} + d_k. With λ = 1
this is the depth; with λ = exp(-ν + iθ) the state forgets brackets after about 1/ν steps, and its phase changes.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from linrnn.paper import published as paper
from linrnn.paper.figures.base import Finding, Result
from linrnn.recurrence import scan
from linrnn.tasks.base import Progress
from linrnn.tasks.expressions import CLOSE, MAX, MED, MIN, SM, ZERO
from linrnn.util import style

Distribution = NDArray[np.float64]  # of a value, (10,)
DIGITS: list[Distribution] = list(np.eye(10))  # of a known value

KNOWN = {  # what a predictor knows of an expression: levels, and whether it sees the operators at the last of them
    "nothing": (0, False),
    "the root's operator": (0, True),
    "and the root's digits": (1, False),
    "and the operators next to these": (1, True),
    "and the digits of these operators": (2, False),
    "and the operators next to these digits": (2, True),
}
ROOT, OWN, BESIDE = list(KNOWN)[1:4]
PAPER = {row.name: float(row.cells[1].split()[0]) for row in paper.NORMALIZATION.rows if row.cells}
DENSE, LRU = PAPER["Linear Dense RNN"], PAPER["LRU (paper)"]
CLOSE_BY = 2.0  # percentage points; or three standard errors for a small number of expressions

MEMORY = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000)  # 1/ν, steps
PHASES = (0.0, 0.0003, 0.003, 0.03)
SHORT, LONG = 100, 10_000  # of the memories of |λ| = .99 and .9999


class Operator(NamedTuple):
    """An operator of an expression and its operands, each a digit or an operator."""

    token: int
    operands: list["Operator | int"]


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    from linrnn.tasks.generators import trees  # imported here, since it loads slowly

    blocks = [trees.grow(seed, block) for block in range(3 if quick else 50)]
    inputs, lengths, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    expressions = [parse(tokens[: length - 1]) for tokens, length in zip(inputs, lengths, strict=True)]
    accuracy, loss = {}, {}
    for done, (name, known) in enumerate(KNOWN.items(), start=1):
        predicted = np.array([predict(expression, *known) for expression in expressions])
        accuracy[name] = 100 * float((predicted.argmax(1) == values).mean())
        loss[name] = float(-np.log(predicted[np.arange(len(values)), values]).mean())
        progress("levels", done, len(KNOWN) + 1)
    found = operands_found(inputs, lengths)
    progress("levels", len(KNOWN) + 1, len(KNOWN) + 1)
    numbers = {
        "expressions": len(values),
        "accuracy": accuracy,
        "loss": loss,
        "paper": PAPER,
        "memory": list(MEMORY),
        "phases": list(PHASES),
        "found": found.tolist(),
    }
    return Result(_findings(accuracy, found, len(values)), numbers, _draw(accuracy, found))


def parse(tokens: NDArray[Any]) -> Operator:
    """An expression as a tree."""
    is_open: list[Operator] = [Operator(-1, [])]  # its only operand will be the expression
    for token in tokens.tolist():
        if token == CLOSE:
            is_open.pop()
        elif token >= ZERO:
            is_open[-1].operands.append(token - ZERO)
        else:
            is_open.append(Operator(token, []))
            is_open[-2].operands.append(is_open[-1])
    (root,) = is_open[0].operands
    assert isinstance(root, Operator)
    return root


def predict(operand: Operator | int, levels: int, operators: bool, depth: int = 1) -> Distribution:
    """The distribution of an expression's value for a predictor that knows its digits down to some levels.

    With `operators`, the predictor also knows the operators at the last of these levels. The lengths that the task
    allows are not taken into account.
    """
    if isinstance(operand, int):
        return DIGITS[operand]
    if levels == 0:
        return unknown(operand.token, depth) if operators else _any_operator(depth)
    known = [predict(each, levels - 1, operators, depth + 1) for each in operand.operands]
    return of_operator(operand.token, np.array(known))


@cache
def unknown(token: int, depth: int) -> Distribution:
    """The distribution of an operator's value at some depth, over all operands that the task's rules could give it."""
    from linrnn.tasks.generators.trees import CHILDREN, DEPTH

    operand = _mean(DIGITS)
    if depth + 1 < DEPTH:
        operand = 0.75 * operand + 0.25 * _any_operator(depth + 1)
    counts = range(CHILDREN[0], CHILDREN[1] + 1)
    return _mean([of_operator(token, np.tile(operand, (n, 1))) for n in counts])


def _any_operator(depth: int) -> Distribution:
    return _mean([unknown(token, depth) for token in (MIN, MAX, MED, SM)])


def _mean(distributions: list[Distribution]) -> Distribution:
    mean: Distribution = np.mean(distributions, 0)
    return mean


def of_operator(token: int, operands: NDArray[np.float64]) -> Distribution:
    """The distribution of an operator's value, given the distributions of independent operands: (operands, 10)."""
    below = operands.cumsum(1)  # P(value ≤ v)
    if token == MED:
        return _median(operands)
    if token in (MIN, MAX):
        not_above = below.prod(0) if token == MAX else 1 - (1 - below).prod(0)
        return np.diff(not_above, prepend=0)
    total = DIGITS[0]
    for operand in operands:  # a convolution modulo 10
        total = np.array([total @ np.roll(operand[::-1], v + 1) for v in range(10)])
    return total


def _median(operands: NDArray[np.float64]) -> Distribution:
    """The median: the mean of the two middle operands, rounded down; for odd n both are the same operand.

    Two counts decide: operands that are at most a, and operands above a and at most b. For a ≤ b the lower middle
    operand is at most a and the upper at most b if the first count is more than (n - 1)//2 and the sum more than n//2.
    """
    n = len(operands)
    below = operands.cumsum(1)
    a, b = np.triu_indices(10)
    counts = np.zeros((len(a), n + 1, n + 1))  # for each (a, b): P(this count up to a, this count between)
    counts[:, 0, 0] = 1
    for cumulative in below:
        up_to_a, between = cumulative[a][:, None, None], (cumulative[b] - cumulative[a])[:, None, None]
        following = counts * (1 - up_to_a - between)
        following[:, 1:] += counts[:, :-1] * up_to_a
        following[:, :, 1:] += counts[:, :, :-1] * between
        counts = following
    i, j = np.indices((n + 1, n + 1))
    both = np.zeros((10, 10))  # P(the lower one ≤ a, the upper one ≤ b)
    both[a, b] = (counts * ((i > (n - 1) // 2) & (i + j > n // 2))).sum((1, 2))
    row, column = np.indices(both.shape)
    both = np.where(row <= column, both, both.diagonal()[column])  # the lower one is at most the upper one
    pairs = np.diff(np.diff(both, axis=0, prepend=0), axis=1, prepend=0)
    middle = (np.arange(10)[:, None] + np.arange(10)) // 2
    return np.bincount(middle.ravel(), pairs.ravel(), 10).clip(0).astype(np.float64)


def operands_found(inputs: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of the root's operands that counts of open brackets find: (phases, memories).

    The count before a token is the token's depth. From each expression the tokens with the smallest counts are taken,
    as many as its root has operands; the root itself and closing brackets are excluded.
    """
    change = torch.from_numpy(((inputs >= MIN) & (inputs <= SM)).astype(np.int64) - (inputs == CLOSE))
    depth = change.cumsum(1) - change  # before each token
    nu = 1 / torch.tensor(MEMORY, dtype=torch.float64)
    theta = torch.tensor(PHASES, dtype=torch.float64)
    lam = torch.exp(torch.complex(-nu.repeat(len(theta)), theta.repeat_interleave(len(nu))))
    step = torch.arange(inputs.shape[1])
    shares = torch.zeros(len(lam), dtype=torch.float64)
    for i, length in enumerate(lengths.tolist()):
        counts, _ = scan(change[i].to(lam.dtype).view(1, -1, 1).expand(1, -1, len(lam)), lam)
        counts = torch.cat([torch.zeros(1, len(lam)), counts[0, :-1].real])  # before each token
        asked = (step > 0) & (step < length - 1) & (torch.from_numpy(inputs[i]) != CLOSE)
        right = (depth[i] == 1)[asked]
        number = int(right.sum())
        shares += right[counts[asked].topk(number, dim=0, largest=False).indices].double().mean(0)
    return (shares / len(lengths)).view(len(theta), len(nu)).numpy()


def _findings(accuracy: dict[str, float], found: NDArray[np.float64], count: int) -> list[Finding]:
    own, beside = accuracy[OWN], accuracy[BESIDE]
    error = 100 * math.sqrt(0.25 / count)
    near = max(CLOSE_BY, 3 * error)
    dense = Finding(
        f"a predictor that knows the root's operator and its digits has the {DENSE}% of the paper's dense linear RNN",
        f"{own:.1f}% of {count:,} expressions (standard error at most {error:.1f})",
        abs(own - DENSE) < near,
    )
    lru = Finding(
        f"a predictor that also knows the operators next to these digits has the {LRU}% of its LRU",
        f"{beside:.1f}%",
        abs(beside - LRU) < near,
    )
    short, long = (100 * found[0, MEMORY.index(memory)] for memory in (SHORT, LONG))
    memory = Finding(
        "to find the root's operands, a state has to remember longer than |λ| = .99 does",
        f"{short:.0f}% of them found with a memory of {SHORT} steps, {long:.0f}% with {LONG:,}",
        bool(long > 95 and short < long / 2),
    )
    turning = 100 * found[-1, MEMORY.index(LONG)]
    phase = Finding(
        "and its phase must change little meanwhile",
        f"with {LONG:,} steps of memory {long:.0f}% without a phase, {turning:.0f}% with θ = {PHASES[-1]}",
        bool(turning < long / 2),
    )
    return [dense, lru, memory, phase]


def _draw(accuracy: dict[str, float], found: NDArray[np.float64]) -> Figure:
    figure, ((left, right),) = style.subplots(1, 2, width=5.6, height=3.2)
    names = list(accuracy)[::-1]
    left.barh(names, [accuracy[name] for name in names], color=style.SKY)
    for name, value, colour in (("dense linear RNN", DENSE, style.ORANGE), ("LRU", LRU, style.BLUE)):
        left.axvline(value, color=colour, linestyle="--", linewidth=1.2, label=f"the paper's {name}, {value}%")
    left.set(title="A predictor that knows this of an expression", xlabel="is right in % of cases")
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=7)
    for theta, shares, colour in zip(PHASES, found, style.COLOURS, strict=False):
        right.plot(MEMORY, 100 * shares, marker="o", markersize=3, color=colour, label=f"θ = {theta:g}")
    right.set(xscale="log", xlabel="memory 1/ν of a state that counts brackets, steps", ylim=(0, 103))
    right.set(title="The root's operands that its count finds", ylabel="%")
    right.legend(frameon=False)
    return figure
