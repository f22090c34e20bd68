"""What ReLU does to a sine's spectrum.

Proposition (spectral effect of ReLU): let P_i = [p_i - L_i, p_i + L_i] be the regions where u > 0. Then

    F_ReLU(u) = F_u ⋆ Σ_i 2 L_i exp(-iωp_i) sinc(ωL_i),    sinc(x) = sin(x)/x:

ReLU multiplies u by the indicator of these regions, so that the spectra convolve and information moves to higher
frequencies; a linear RNN cannot do this. For u of period 2π both are Fourier series: u(t) = Σ_n a_n exp(int), and the
kernel's coefficients are the sum above at ω = n, over one period, divided by 2π. For u = sin t the result is 1/π +
sin(t)/2 - (2/π) Σ_m cos(2mt)/(4m² - 1).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from linrnn.cores.lru import LRU
from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.util import style

Array = npt.NDArray[Any]
Series = dict[int, complex]  # Fourier coefficients a_n, by n

SIGNALS: dict[str, Series] = {
    "sin t": {1: -0.5j, -1: 0.5j},
    "sin t - 1/2": {1: -0.5j, -1: 0.5j, 0: -0.5},
    "sin t + sin 3t - 0.3 cos 4t": {1: -0.5j, -1: 0.5j, 3: -0.5j, -3: 0.5j, 4: -0.15, -4: -0.15},
}
HARMONICS = 32
PERIOD, PERIODS, WARM_UP = 64, 16, 2000  # steps of the sine, and steps before them in which the LRU settles


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    samples = 2**14 if quick else 2**18
    measured, predicted = {}, {}
    for done, (name, a) in enumerate(SIGNALS.items(), start=1):
        measured[name] = coefficients(np.maximum(values(a, samples), 0))
        predicted[name] = proposition(a)
        progress("relu", done, len(SIGNALS) + 1)
    through = _through_lru()
    progress("relu", len(SIGNALS) + 1, len(SIGNALS) + 1)
    numbers = {
        "samples": samples,
        "measured": {name: {"re": c.real.tolist(), "im": c.imag.tolist()} for name, c in measured.items()},
        "proposition": {name: {"re": c.real.tolist(), "im": c.imag.tolist()} for name, c in predicted.items()},
        "lru": {"harmonics": through[:-1].tolist(), "between": float(through[-1])},
    }
    return Result(_findings(measured, predicted, through), numbers, _draw(measured, predicted, through))


def values(a: Series, samples: int) -> Array:
    """u(t) over one period."""
    t = 2 * np.pi * np.arange(samples) / samples
    return np.asarray(sum(c * np.exp(1j * n * t) for n, c in a.items()).real)


def coefficients(u: Array) -> Array:
    """The Fourier coefficients 0 ... HARMONICS of one sampled period."""
    return np.asarray(np.fft.rfft(u)[: HARMONICS + 1] / len(u))


def regions(a: Series) -> list[tuple[float, float]]:
    """Centre p and half-width L of the regions of one period where u > 0, from the roots of u in z = exp(it)."""
    top = max(a)
    roots = np.roots([a.get(n, 0) for n in range(top, -top - 1, -1)])
    edges = np.sort(np.angle(roots[np.abs(np.abs(roots) - 1) < 1e-6]))
    edges = np.append(edges, edges[0] + 2 * np.pi)
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    u = sum(c * np.exp(1j * n * middles) for n, c in a.items()).real
    return [(float(p), float(L)) for p, L, positive in zip(middles, halves, u > 0, strict=True) if positive]


def proposition(a: Series) -> Array:
    """The coefficients 0 ... HARMONICS of ReLU(u): the coefficients of u, convolved with the kernel of its regions."""

    def kernel(n: Array) -> Array:
        parts = [2 * L * np.exp(-1j * n * p) * np.sinc(n * L / np.pi) for p, L in regions(a)]  # NumPy's has a π inside
        return np.asarray(sum(parts) / (2 * np.pi))

    n = np.arange(HARMONICS + 1)
    return np.asarray(sum(c * kernel(n - m) for m, c in a.items()))


@torch.no_grad()
def _through_lru() -> Array:
    """The spectrum of a random linear RNN's answer to a sine: for each harmonic the amplitude over all outputs."""
    layer = LRU(8, 64, r_max=0.95, dtype=torch.float64)
    t = 2 * math.pi * torch.arange(WARM_UP + PERIODS * PERIOD, dtype=torch.float64) / PERIOD
    y, _ = layer(torch.sin(t).view(1, -1, 1).expand(1, -1, 8))
    spectrum = np.fft.rfft(y[0, WARM_UP:].numpy(), axis=0) / (PERIODS * PERIOD)
    size = np.sqrt((np.abs(spectrum) ** 2).sum(1))
    between = np.sqrt((np.delete(size, np.arange(0, len(size), PERIODS)) ** 2).sum())
    return np.append(size[::PERIODS], between)  # the harmonics, and all frequencies between them


def _findings(measured: dict[str, Array], predicted: dict[str, Array], through: Array) -> list[Finding]:
    findings = []
    for name, c in measured.items():
        error = float(np.abs(c - predicted[name]).max())
        words = f"FFT and closed form differ by {error:.0e} over {HARMONICS} harmonics; largest {np.abs(c).max():.2f}"
        findings.append(Finding(f"ReLU({name}) has the proposition's spectrum", words, error < 1e-6))
    sine = np.abs(measured["sin t"])
    above = float((sine[2:] ** 2).sum() / (sine[1:] ** 2).sum())
    words = f"{above:.1%} of what oscillates in ReLU(sin t) is above the sine's frequency"
    findings.append(Finding("ReLU moves energy to higher frequencies", words, above > 0.01))
    leaked = float(np.delete(through, 1).max() / through[1])
    words = f"an LRU's answer to a sine has at most {leaked:.0e} of its amplitude at any other frequency"
    findings.append(Finding("a linear RNN cannot", words, leaked < 1e-9))
    return findings


def _draw(measured: dict[str, Array], predicted: dict[str, Array], through: Array) -> Figure:
    figure, axes = style.subplots(2, len(SIGNALS), width=4.2, height=2.8, sharey="row")
    t = np.arange(1000) / 1000
    n = np.arange(21)
    for (above, below), (name, a) in zip(axes.T, SIGNALS.items(), strict=True):
        u = values(a, 1000)
        above.plot(t, u, color=style.ORANGE, label="u")
        above.plot(t, np.maximum(u, 0), "--", color=style.BLUE, label="ReLU(u)")
        above.set(title=f"u = {name}", xlabel="t / 2π")
        before = np.array([abs(a.get(int(k), 0)) for k in n])
        below.bar(n, before, width=0.8, color=style.ORANGE, alpha=0.7, label="u")
        below.bar(n, np.abs(measured[name][n]), width=0.35, color=style.BLUE, label="ReLU(u), FFT")
        below.plot(n, np.abs(predicted[name][n]), "x", color=style.BLACK, markersize=5, label="ReLU(u), proposition")
        below.set(yscale="log", ylim=(3e-4, 1), xlabel="frequency n")
        below.set_xticks(range(0, 21, 4))
    size = through[n] * 0.5 / through[1]  # scaled to the input's
    axes[1, 0].plot(n, size, "o", mfc="none", color=style.GREEN, markersize=9, label="LRU(u), scaled")
    axes[0, 0].legend(frameon=False, loc="lower left")
    axes[1, 0].legend(frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("signal")
    axes[1, 0].set_ylabel("|coefficient|")
    figure.suptitle("ReLU copies a signal to higher frequencies, exactly as the proposition says")
    return figure
