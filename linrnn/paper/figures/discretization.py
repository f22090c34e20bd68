"""S4D's discretization, seen as an initialization and a normalization (the paper's section "Insights on S4").

A diagonal SSM with eigenvalues ã in continuous time becomes by zero-order hold (ZOH), with a step size Δ,

    x_k = exp(Δ·ã)·x_{k-1} + (exp(Δ·ã) - 1)/ã · B·u_k.

The paper's claims:

- S4D-Lin, ã_n = -1/2 + iπn, starts on a ring close to the unit circle: for Δ = 0.001 and N = 128,
  |λ| = exp(-Δ/2) ≈ 0.9995, with phases πΔn in [0, π/8]. Phase and magnitude are linked by Δ;
  a small Δ also shrinks the phase. The LRU draws them independently of each other.
- Δ·B is the first-order expansion in Δ of the multiplier of the input.
- Without it, an input of size 1 brings the state to Σ|λ|^j, which is O(1/Δ); with Δ the state stays bounded, as with γ.
"""

import math
from typing import Any, get_args

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from linrnn import spectrum
from linrnn.paper.figures.base import Finding, Result
from linrnn.recurrence import scan
from linrnn.tasks.base import Progress
from linrnn.util import style

STEP_SIZES = (0.001, 0.1)  # Δ is drawn log-uniformly between them, one for each feature
RING = (0.9, 0.999)  # the LRU's on sCIFAR
MULTIPLIERS = {
    "none": ("1", style.BLACK),
    "delta": ("Δ", style.ORANGE),
    "zoh": ("ZOH", style.GREEN),
    "gamma": ("γ", style.BLUE),
}
NAMES = {"lin": "S4D-Lin", "inv": "S4D-Inv", "legs": "S4D-LegS"}


def zoh(a: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """λ = exp(Δ·ã) and the multiplier of the input, (exp(Δ·ã) - 1)/ã."""
    lam = torch.exp(delta * a)
    return lam, (lam - 1) / a


def multipliers(a: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """The multiplier of each state's input: 1, Δ, ZOH's factor, or γ = sqrt(1 - |λ|²)."""
    a, delta = torch.broadcast_tensors(a, delta)
    gamma = spectrum.gamma(-a.real * delta)
    return {"none": torch.ones_like(delta), "delta": delta, "zoh": zoh(a, delta)[1], "gamma": gamma}


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    n, features = (32, 24) if quick else (64, 128)
    low, high = map(math.log, STEP_SIZES)
    delta = torch.exp(low + (high - low) * torch.rand(features, 1, dtype=torch.float64))
    spectra = {init: zoh(spectrum.s4d(n, init), delta)[0] for init in get_args(spectrum.S4DInit)}
    nu, theta = spectrum.sample_ring(n * features, *RING, 2 * math.pi)
    ring = torch.polar(torch.exp(-nu), theta)
    gains = _gains(quick, progress)
    findings = [_lin_claim(), _link_claim(delta, ring), _first_order_claim(), *_gain_claims(gains)]
    numbers: dict[str, Any] = {
        "states": n,
        "step_sizes": delta.flatten().tolist(),
        "radii": {name: [float(lam.abs().min()), float(lam.abs().max())] for name, lam in spectra.items()},
        "ring": RING,
        "gains": gains,
    }
    return Result(findings, numbers, _figure(spectra, delta, ring, gains))


def _lin_claim() -> Finding:
    lam, _ = zoh(spectrum.s4d(128, "lin"), torch.tensor(0.001, dtype=torch.float64))
    radius, phase = float(lam.abs().mean()), float(lam.angle().max())
    return Finding(
        "S4D-Lin with Δ = 0.001 and N = 128 starts on a ring close to the circle: |λ| ≈ 0.9995, phases in [0, π/8]",
        f"|λ| = {radius:.5f}, phases up to π/{math.pi / phase:.2f}",
        abs(radius - 0.9995) < 5e-5 and float(lam.angle().min()) >= 0 and abs(phase - math.pi / 8) < 0.02,
    )


def _link_claim(delta: Tensor, ring: Tensor) -> Finding:
    """For each state, over all Δ: how closely log θ follows log ν. S4D: θ/ν is 2πn for every Δ; the LRU:
    independent."""
    lam, _ = zoh(spectrum.s4d(10, "lin")[1:], delta)  # the first has phase 0, later phases exceed π
    tied = [_correlation(state.angle(), -state.abs().log()) for state in lam.T]
    free = _correlation(ring.angle() % (2 * math.pi), -ring.abs().log())
    return Finding(
        "Δ links phase and magnitude: a small Δ moves λ to the circle and shrinks its phase; the LRU draws them apart",
        f"correlation of log θ with log ν over Δ: S4D-Lin {min(tied):.3f} (by construction), LRU's ring {free:+.3f}",
        min(tied) > 0.999 and abs(free) < 4 / math.sqrt(len(ring)),
    )


def _first_order_claim() -> Finding:
    """The difference of an expansion to first order shrinks with Δ²."""
    delta = torch.tensor([1e-3, 1e-4], dtype=torch.float64)
    a = spectrum.s4d(4, "lin").unsqueeze(1)
    error = (zoh(a, delta)[1] - delta).abs()
    orders = torch.log10(error[:, 0] / error[:, 1])
    relative = float((error[:, 0] / delta[0]).max())
    return Finding(
        "Δ·B is the first-order expansion in Δ of ZOH's (exp(Δã) - 1)/ã·B",
        f"the difference shrinks with Δ^{float(orders.min()):.3f}; at Δ = 0.001 it is {relative:.2%} for S4D-Lin's ã_3",
        bool(((orders - 2).abs() < 0.02).all()),
    )


def _gains(quick: bool, progress: Progress) -> dict[str, Any]:
    """How large the states get, by Δ and multiplier: the formulas, and measured by running the recurrence.

    peak: |x| for the worst input with |u_k| = 1, which has the phases of λ^k: Σ|λ|^j = 1/(1 - |λ|) times the
    multiplier. noise: the root mean square of |x| for white noise of variance 1: 1/sqrt(1 - |λ|²) times the multiplier.
    """
    n, batch = (8, 2) if quick else (32, 8)
    a = spectrum.s4d(n, "lin")
    step_sizes = torch.logspace(
        math.log10(STEP_SIZES[0]), math.log10(STEP_SIZES[1]), 3 if quick else 7, dtype=torch.float64
    )
    formula: dict[str, list[dict[str, Any]]] = {"peak": [], "noise": []}
    measured: dict[str, list[dict[str, Any]]] = {"peak": [], "noise": []}
    for i, delta in enumerate(step_sizes):
        progress("states", i, len(step_sizes))
        lam, _ = zoh(a, delta)
        states = {"peak": 1 / (1 - lam.abs()), "noise": 1 / spectrum.gamma(-a.real * delta)}
        ran = _run_states(lam, length=int(20 / delta), batch=batch)
        for kind in formula:
            for into, x in ((formula, states[kind]), (measured, ran[kind])):
                values = {name: x * b.abs() for name, b in multipliers(a, delta).items()}
                into[kind].append({name: v.tolist() for name, v in values.items()})
    progress("states", len(step_sizes), len(step_sizes))
    # Of |x|² under noise, over T = 10/Δ steps: it decays with |λ|² = exp(-Δ), so T steps count as T·Δ/2 = 5 independent
    # steps.
    error = math.sqrt(1 / (5 * batch * n))
    return {"step_sizes": step_sizes.tolist(), "formula": formula, "measured": measured, "noise_error": error}


def _run_states(lam: Tensor, length: int, batch: int) -> dict[str, Tensor]:
    """|x| at the end under the worst input, and its root mean square under white noise, with the multiplier 1."""
    k = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    worst = torch.polar(torch.ones(()).double(), lam.angle() * k).unsqueeze(0)
    _, final = scan(worst, lam)
    x, _ = scan(torch.randn(batch, length, len(lam), dtype=torch.complex128), lam)
    settled = x[:, length // 2 :]  # |λ|^(length/2) = exp(-5) of the start is left
    return {"peak": final[0].abs(), "noise": settled.abs().square().mean((0, 1)).sqrt()}


def _gain_claims(gains: dict[str, Any]) -> list[Finding]:
    step_sizes = np.array(gains["step_sizes"])

    def largest(kind: str, name: str) -> np.ndarray[Any, Any]:
        return np.array([max(values[name]) for values in gains["measured"][kind]])

    def rms(
        name: str,
    ) -> np.ndarray[Any, Any]:  # over states, since the largest is biased
        return np.array([np.sqrt(np.mean(np.square(values[name]))) for values in gains["measured"]["noise"]])

    bare, with_delta, with_gamma = largest("peak", "none"), largest("peak", "delta"), rms("gamma")
    slope = np.polyfit(np.log(step_sizes), np.log(bare), 1)[0]
    smaller = all(
        z <= d * (1 + 1e-9)
        for values in gains["measured"]["peak"]
        for z, d in zip(values["zoh"], values["delta"], strict=True)
    )
    damped = rms("delta")
    return [
        Finding(
            "Without a multiplier an input of size 1 brings the state to O(1/Δ)",
            f"|x| ~ Δ^{slope:.3f}: {bare.min():.1f} at Δ = {step_sizes[-1]:g}, {bare.max():,.0f} at {step_sizes[0]:g}",
            bool(abs(slope + 1) < 0.02),
        ),
        Finding(
            "Δ·B avoids the blow-up, and so does ZOH's multiplier",
            f"with Δ, |x| is from {with_delta.min():.3f} to {with_delta.max():.3f} at all Δ; "
            f"with ZOH {'never' if smaller else 'not always'} more",
            bool(with_delta.max() < 2.1) and smaller,
        ),
        Finding(
            "γ does the same for white noise: the state has the variance of the input at all Δ",
            f"root mean square of |x|: with γ from {with_gamma.min():.2f} to {with_gamma.max():.2f}; "
            f"with Δ, which is smaller than γ, from {damped.min():.3f} to {damped.max():.2f}",
            bool(abs(with_gamma**2 - 1).max() < 4 * gains["noise_error"] and damped.max() < 1),
        ),
    ]


def _correlation(theta: Tensor, nu: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([theta.log(), nu.log()]))[0, 1])


def _figure(spectra: dict[str, Tensor], delta: Tensor, ring: Tensor, gains: dict[str, Any]) -> Figure:
    figure, axes = style.subplots(2, 4, height=3.3)
    _disks(axes[0], spectra, delta, ring)
    _draw_multipliers(axes[1, 0], gains)
    _draw_gains(axes[1, 1], gains, "peak", "Worst input: Δ and ZOH bound |x|")
    _draw_gains(axes[1, 2], gains, "noise", "White noise: γ keeps |x| at 1")
    ax = axes[1, 3]
    lam = spectra["lin"]
    phases = (spectrum.s4d(lam.shape[1], "lin").imag * delta)[:, 1:]
    memory = (-1 / lam[:, 1:].abs().log()).flatten()
    dots = {"s": 2, "alpha": 0.4, "rasterized": True}  # thousands: as pixels also in an SVG
    ax.scatter(ring.angle() % (2 * math.pi), -1 / ring.abs().log(), color=style.BLUE, label="LRU", **dots)
    ax.scatter(phases.flatten(), memory, color=style.ORANGE, label="S4D-Lin", **dots)
    ax.axvline(2 * math.pi, color=style.BLACK, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="phase θ, unwrapped (dotted: 2π)", ylabel="memory 1/ν, steps")
    ax.set_title("Δ links phase and memory")
    ax.legend(markerscale=4, loc="lower left")
    figure.suptitle("Discretization chooses a ring and a normalization")
    return figure


def _disks(axes: Any, spectra: dict[str, Tensor], delta: Tensor, ring: Tensor) -> None:
    from matplotlib.colors import LogNorm

    for ax, (init, lam) in zip(axes, spectra.items(), strict=False):
        style.unit_circle(ax)
        colours = delta.expand_as(lam).flatten()
        points = ax.scatter(
            lam.real.flatten(), lam.imag.flatten(), s=2, c=colours, cmap="viridis", norm=LogNorm(*STEP_SIZES),
            rasterized=True,
        )  # fmt: skip
        ax.set_title(f"{NAMES[init]}, by Δ")
        inside = ax.inset_axes((0.3, 0.5, 0.4, 0.05))  # where the disk is empty
        ax.figure.colorbar(points, cax=inside, orientation="horizontal", label="Δ")
    style.unit_circle(axes[3])
    axes[3].scatter(ring.real, ring.imag, s=0.5, color=style.BLUE, rasterized=True)
    axes[3].set_title(f"LRU, ring [{RING[0]}, {RING[1]}]")


def _draw_multipliers(ax: Any, gains: dict[str, Any]) -> None:
    delta = torch.logspace(math.log10(STEP_SIZES[0]), math.log10(STEP_SIZES[1]), 100, dtype=torch.float64)
    a = spectrum.s4d(len(gains["formula"]["peak"][0]["zoh"]), "lin").unsqueeze(1)
    for name, b in multipliers(a, delta).items():
        _band(ax, delta.numpy(), b.abs().numpy(), *MULTIPLIERS[name])
    ax.set(xscale="log", yscale="log", xlabel="step size Δ", ylabel="multiplier of the input")
    ax.set_title("Δ is ZOH to first order")
    ax.legend(ncols=2, loc="center left", bbox_to_anchor=(0, 0.8))


def _draw_gains(ax: Any, gains: dict[str, Any], kind: str, title: str) -> None:
    delta = np.array(gains["step_sizes"])
    for name, (label, colour) in MULTIPLIERS.items():
        formula = np.array([values[name] for values in gains["formula"][kind]]).T
        measured = np.array([values[name] for values in gains["measured"][kind]]).T
        _band(ax, delta, formula, label, colour)
        ax.plot(delta, np.median(measured, axis=0), "o", markersize=4, color=colour)
    ax.set(xscale="log", yscale="log", xlabel="step size Δ", ylabel="|x|; dots: measured")
    ax.set_title(title)


def _band(ax: Any, x: Any, states: Any, label: str, colour: str) -> None:
    """The median over states as a line, and the minimum to the maximum as a band."""
    ax.plot(x, np.median(states, axis=0), color=colour, label=label)
    ax.fill_between(x, states.min(axis=0), states.max(axis=0), color=colour, alpha=0.2, linewidth=0)
