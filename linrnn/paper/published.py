"""The paper's tables as printed, to which `linrnn table` adds our runs.

Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", 2023, arXiv 2303.06349. Accuracies are in
percent: the mean and (standard error) of three seeds; numbers published by others have no standard error. ✗: no better
than chance. A source is the number of a table, and in brackets its label in the paper's LaTeX.
"""

from typing import Literal, NamedTuple


class Column(NamedTuple):
    """A task, and changes to its recipe as for `linrnn train --set`."""

    name: str
    task: str
    changes: tuple[str, ...] = ()


class TableRow(NamedTuple):
    """A model: its name in the paper, its name for `linrnn train --core` if it has one, and its cells, separated by
    |."""

    name: str
    preset: str | None
    text: str = ""  # empty: not in the paper
    changes: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(cell.strip() for cell in self.text.split("|")) if self.text else ()


class Section(NamedTuple):
    """A table, or one of several under one caption."""

    title: str
    source: str
    kind: Literal["accuracy", "speed", "ring"]
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


def _sweep(part: str, how: str, preset: str, *rows: str) -> Section:
    """A grid over the ring on sCIFAR: rows by r_max, columns by r_min. The rate is 0.004, as in the paper."""
    return Section(
        f"Test accuracy on sCIFAR by ring, {how}",
        f"Table 5{part} (tb:effect_stability_gamma_cifar)",
        "accuracy",
        tuple(Column(f"r_min = {r}", "scifar", (f"model.options.r_min={r}",)) for r in ("0", "0.5", "0.9")),
        tuple(
            TableRow(f"r_max = {r}", preset, cells, (f"model.options.r_max={r}",))
            for r, cells in zip(("0.9", "0.99", "0.999"), rows, strict=True)
        ),
    )


LRA = (
    Column("sCIFAR", "scifar"),
    Column("ListOps", "listops"),
    Column("Text", "text"),
    Column("Retrieval", "retrieval"),
    Column("Pathfinder", "pathfinder"),
    Column("Path-X", "pathx"),
)

# rows of several tables
DENSE = "72.2 (0.2) | 50.4 (0.2) | 89.1 (0.1) | 89.1 (0.1) | ✗ | ✗"
REAL_IMAG = "86.5 (0.1) | 58.8 (0.3) | 87.4 (0.3) | 87.8 (0.5) | ✗ | ✗"
RING = "88.1 (0.0) | 59.4 (0.3) | 89.4 (0.1) | 90.1 (0.1) | 94.4 (0.3) | ✗"

NONLINEARITY = Section(
    "The effect of removing the recurrent nonlinearity on test accuracy",
    "Table 6 (tb:effect_nonlinearity_stddevs_app), of which Table 1 (tb:effect_nonlinearity) is a part",
    "accuracy",
    LRA,
    (
        TableRow("RNN-ReLU", "rnn-relu", "69.7 (0.2) | 37.6 (8.0) | 88.0 (0.1) | 88.5 (0.1) | ✗ | ✗"),
        TableRow("RNN-Tanh", "rnn-tanh", "69.9 (0.3) | 43.9 (0.1) | 87.2 (0.1) | 88.9 (0.2) | ✗ | ✗"),
        TableRow("RNN-Lin", "rnn-linear", DENSE),
        TableRow("GRU", "gru"),
        TableRow("LSTM", "lstm"),
    ),
)

PARAMETERIZATION = Section(
    "Test accuracy of linear RNNs by parameterization of the transition matrix",
    "Table 7 (tb:effect_parametrization_exp_stddevs), of which Table 2 (tb:effect_parametrization_exp) is a part",
    "accuracy",
    LRA,
    (
        TableRow("Dense A", "rnn-linear", DENSE),
        TableRow("Λ Real + Im", "diag-real-imag", REAL_IMAG),
        TableRow("Λ Exp", "diag-exp", "85.4 (0.7) | 60.5 (0.3) | 86.5 (0.4) | 89.4 (0.1) | 65.4 (9.0) | ✗"),
        TableRow(
            "Λ Stable Exp", "diag-stable-exp", "87.2 (0.4) | 59.4 (0.3) | 87.6 (0.3) | 89.1 (0.2) | 93.5 (0.5) | ✗"
        ),
        TableRow("+ Ring Init", "diag-ring", RING),
    ),
)

NORMALIZATION = Section(
    "The effect of γ on test accuracy, and deep state-space models",
    "Table 8 (tb:effect_normalization_stddevs), of which Table 3 (tb:effect_normalization) is a part",
    "accuracy",
    LRA,
    (
        TableRow("Linear Dense RNN", "rnn-linear", DENSE),
        TableRow("Diagonal Complex RNN", "diag-real-imag", REAL_IMAG),
        TableRow("Stable Exp, Ring Init", "diag-ring", RING),
        TableRow("LRU (paper)", "lru", "89.0 (0.1) | 60.2 (0.8) | 89.4 (0.1) | 89.9 (0.1) | 95.1 (0.1) | 94.2 (0.4)"),
        TableRow("S4D", "s4d", "91.5 (0.2) | 60.2 (0.3) | 86.4 (0.0) | 89.5 (0.0) | 94.2 (0.3) | 97.5 (0.0)"),
        TableRow("S5", "s5", "88.8 (0.1) | 58.5 (0.3) | 86.2 (0.1) | 88.9 (0.0) | 95.7 (0.1) | 96.0 (0.1)"),
        TableRow("S4D, first-order B", "s4d-first-order"),
        TableRow("S4D, first-order B, its Δ decoupled", "s4d-decoupled"),
        TableRow("S4D-LegS, published sizes", "s4d-published"),
        TableRow("S5, published sizes", "s5-published"),
        TableRow("S4 (as published)", "s4", "91.1 | 59.6 | 86.8 | 90.9 | 94.2 | 96.4"),
        TableRow("S4D-LegS (as published)", None, "89.9 | 60.5 | 86.2 | 89.5 | 93.1 | 91.9"),
        TableRow("S5 (as published)", None, "90.1 | 62.2 | 89.3 | 91.4 | 95.3 | 98.6"),
    ),
)

SPEED = Section(
    "Training steps a second",
    "Table 4 (tb:steps_per_sec), with the LRU's speed-up over the tanh RNN; one NVIDIA A100",
    "speed",
    LRA,
    (
        TableRow("Tanh RNN", "rnn-tanh", "2.0 | 1.1 | 0.5 | 0.5 | 2.1 | 0.14"),
        TableRow("LRU (paper)", "lru", "15.9 (8x) | 2.1 (1.9x) | 14.7 (29x) | 5.7 (11.4x) | 15.5 (7.4x) | 2.4 (17x)"),
        TableRow("S4D", "s4d", "13.5 | 2.2 | 10.6 | 3.0 | 24.5 | 2.6"),
        TableRow("S5", "s5", "15.9 | 2.2 | 14.4 | 5.7 | 15.6 | 2.3"),
    ),
)

RINGS = Section(
    "The rings [r_min, r_max] where eigenvalues start",
    "Table 8 (tb:effect_normalization_stddevs); phases start in [0, 2π], on Path-X in [0, π/10]",
    "ring",
    LRA,
    (
        TableRow(
            "Stable Exp, Ring Init", "diag-ring", "[0.9, 0.99] | [0.0, 1.0] | [0.0, 0.9] | [0.5, 0.9] | [0.9, 0.999] | "
        ),
        TableRow(
            "+ γ (LRU)", "lru", "[0.9, 0.999] | [0.0, 0.99] | [0.5, 0.9] | [0.5, 0.9] | [0.9, 0.999] | [0.999, 0.9999]"
        ),
    ),
)

SWEEPS = (
    _sweep("a", "exp without stability", "diag-exp",
           "87.6 (0.4) | 87.8 (0.1) | 87.9 (0.2)",
           "83.8 (0.9) | 85.8 (1.2) | 81.9 (3.8)",
           "83.9 (0.2) | 84.8 (0.4) | 84.8 (0.8)"),
    _sweep("b", "with stability", "diag-stable-exp",
           "86.2 (0.2) | 86.6 (0.3) | 87.3 (0.1)",
           "87.8 (0.2) | 87.7 (0.1) | 88.1 (0.0)",
           "87.4 (0.2) | 87.4 (0.1) | 87.5 (0.4)"),
    _sweep("c", "with γ (LRU)", "lru",
           "86.4 (0.1) | 86.5 (0.1) | 88.3 (0.1)",
           "88.1 (0.1) | 88.4 (0.1) | 89.0 (0.2)",
           "88.1 (0.1) | 88.6 (0.0) | 89.0 (0.1)"),
)  # fmt: skip

TABLES: dict[str, tuple[Section, ...]] = {
    "nonlinearity": (NONLINEARITY,),
    "parameterization": (PARAMETERIZATION,),
    "normalization": (NORMALIZATION,),
    "speed": (SPEED,),
    "ring": (RINGS, *SWEEPS),
}
