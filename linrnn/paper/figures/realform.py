"""Complex diagonal and real 2×2 blocks: the same map.

The paper's appendix on alternatives to complex numbers: in the real basis [Re v, Im v] of its eigenvectors, a pair of
eigenvalues λ, λ* acts as the block

    Λ̃ = ((Re λ, -Im λ), (Im λ, Re λ)),

so that every complex diagonal system is a real one with such 2×2 blocks on the diagonal of A. Multiplying by a block is
multiplying by λ: complex numbers are not needed, but they store a block in two numbers instead of four, and all blocks
in 2N numbers instead of the (2N)² of a dense matrix A.
"""

import os
from typing import Any

import torch
from matplotlib.figure import Figure

from linrnn.bench.measure import milliseconds
from linrnn.cores.equivalence import real_form
from linrnn.cores.lru import LRU
from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.util import style

H, BATCH = 16, 2
DIAGONAL, MATRIX = "complex diagonal, scan", "real 2×2 blocks in a matrix"


@torch.no_grad()
def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    widths, L, rounds = ((8, 128), 64, 3) if quick else ((8, 16, 32, 64, 128, 256), 2048, 9)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # times are valid only at a small load
    rows = []
    for done, N in enumerate(widths, start=1):
        rows.append(compare(N, L) | {"ms": _speed(N, L, rounds)})
        progress("realform", done, len(widths))
    numbers = {"H": H, "batch": BATCH, "L": L, "load_before": load, "rows": rows}
    return Result(_findings(rows), numbers, _draw(rows))


def compare(N: int, L: int) -> dict[str, float]:
    """The differences between an LRU and its real form, relative to the largest number: outputs and eigenvalues."""
    layer = LRU(H, N, r_min=0.9, r_max=0.999, dtype=torch.float64)
    blocks = real_form(layer)
    u = torch.randn(BATCH, L, H, dtype=torch.float64)
    (y, x), (y_real, x_real) = layer(u), blocks(u)
    lam = layer.eigenvalues()
    apart = (torch.cat([lam, lam.conj()]).unsqueeze(1) - blocks.eigenvalues()).abs()
    return {
        "N": N,
        "output_error": float((y - y_real).abs().max() / y.abs().max()),
        "state_error": float((x.movedim(1, 2).flatten(1) - x_real).abs().max() / x.abs().max()),
        "eigenvalue_error": float(torch.maximum(apart.amin(0), apart.amin(1)).max()),  # each has a counterpart
    }


def _speed(N: int, L: int, rounds: int) -> dict[str, float]:
    """Milliseconds on the same input, in float32."""
    layer = LRU(H, N, r_min=0.9, r_max=0.999)
    blocks = real_form(layer)
    u = torch.randn(BATCH, L, H)
    return milliseconds({DIAGONAL: lambda: layer(u), MATRIX: lambda: blocks(u)}, rounds)


def _findings(rows: list[dict[str, Any]]) -> list[Finding]:
    findings = []
    for claim, key in (
        ("the outputs are equal to rounding", "output_error"),
        ("the real states are the real and imaginary parts", "state_error"),
        ("the real form's eigenvalues are λ and λ*", "eigenvalue_error"),
    ):
        error = max(row[key] for row in rows)
        findings.append(Finding(claim, f"off by {error:.0e} at most, N up to {rows[-1]['N']}, float64", error < 1e-11))
    ms = rows[-1]["ms"]
    words = f"{ms[DIAGONAL]:.2f} ms against {ms[MATRIX]:.2f} ms at N = {rows[-1]['N']}: {_ratio(rows[-1]):.1f} times"
    findings.append(Finding("two numbers for each block are faster than a matrix", words, _ratio(rows[-1]) > 1))
    return findings


def _ratio(row: dict[str, Any]) -> float:
    return float(row["ms"][MATRIX] / row["ms"][DIAGONAL])


def _draw(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = style.subplots(1, 2, width=4.4, height=3.4)
    errors, times = axes[0]
    N = [row["N"] for row in rows]
    for key, mark, colour in (("output", "o", style.BLUE), ("state", "s", style.GREEN), ("eigenvalue", "^", style.RED)):
        values = [max(row[f"{key}_error"], 1e-18) for row in rows]  # a logarithm has no 0
        errors.plot(N, values, f"{mark}-", color=colour, label=f"{key}s")
    errors.axhline(torch.finfo(torch.float64).eps, linestyle=":", color=style.BLACK, label="rounding of one number")
    errors.set(ylim=(1e-19, 1e-9), ylabel="relative difference, float64", title="How far apart they are")
    for name, mark, colour in ((DIAGONAL, "o", style.BLUE), (MATRIX, "s", style.ORANGE)):
        times.plot(N, [row["ms"][name] for row in rows], f"{mark}-", color=colour, label=name)
    times.set(ylabel="ms, float32", title="How long they take")
    for ax in (errors, times):
        ax.set(xscale="log", yscale="log", xlabel="N")
        ax.set_xticks(N, [str(n) for n in N])
        ax.minorticks_off()
        ax.legend(frameon=False)
    figure.suptitle("An LRU as complex diagonal and as real 2×2 blocks: the same map")
    return figure
