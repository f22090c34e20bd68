"""A nonlinear system with inputs, learned as MLP → linear RNN → linear map (the paper's Koopman view).

For a system x_{k+1} = S(x_k, u_k) Koopman's operator is linear on observables of the state x and of the future inputs
ũ, so that x_k = V·Λ^k·Φ(x_0, ũ), with Λ diagonal and Φ nonlinear. An MLP can be Φ, a linear RNN Λ^k, a linear map V.

The system: a damped pendulum with a torque, φ'' = -sin φ - 0.1·φ' + u, x = (φ, φ'), in steps of 0.1; the torque is
constant over each fifth of the horizon, and random, as is x_0. The model: an LRU that reads Φ(x_0, ũ) as an impulse at
the first step, and a linear map of its outputs. For comparison, the same with a linear Φ: a linear RNN alone. No linear
RNN of any size is better than the best linear prediction of each x_k from (x_0, ũ) by least squares.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from linrnn.cores.lru import LRU
from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.util.style import BLACK, BLUE, GREEN, ORANGE, subplots, unit_circle

STEP, DAMPING, TORQUES = 0.1, 0.1, 5
FEATURES, STATES, WIDTH = 32, 64, 128
NAMES = {"mlp": "MLP → linear RNN", "linear": "linear RNN", "best": "best linear prediction"}
COLOURS = {"mlp": BLUE, "linear": ORANGE, "best": GREEN}


class Data(NamedTuple):
    """The input of Φ, (n, 2 + torques): the first state and the torques; and the states x_1, x_2, ..., (n, horizon,
    2)."""

    start: Tensor
    states: Tensor


class Koopman(nn.Module):
    """x_k = V·Λ^k·Φ(x_0, ũ), Φ an MLP or linear."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        inputs = 2 + TORQUES
        self.phi: nn.Module = nn.Linear(inputs, FEATURES)
        if kind == "mlp":
            layers = (nn.Linear(inputs, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
            self.phi = nn.Sequential(*layers, nn.Linear(WIDTH, FEATURES))
        self.rnn = LRU(FEATURES, STATES, r_min=0.8, r_max=1.0, max_phase=math.pi / 8)
        self.V = nn.Linear(FEATURES, 2)

    def forward(self, start: Tensor, horizon: int) -> Tensor:
        """The states x_1, x_2, ..., (n, horizon, 2), from x_0 and the torques (n, 2 + torques)."""
        impulse = F.pad(self.phi(start).unsqueeze(1), (0, 0, 0, horizon - 1))
        x: Tensor = self.V(self.rnn(impulse)[0])
        return x


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    """Learn from random starts and torques; returns the error on new starts and torques, over the horizon."""
    horizon, n, steps = (30, 2000, 250) if quick else (60, 8000, 1500)
    torch.manual_seed(seed)
    train, test = simulate(n, horizon), simulate(1000, horizon)
    predictions = {"best": best_linear(train, test.start)}
    spectra = {}
    for i, kind in enumerate(("linear", "mlp")):
        torch.manual_seed(seed)
        model = Koopman(kind)
        learn(model, train, steps, progress, i * steps, 2 * steps)
        with torch.no_grad():
            predictions[kind] = model(test.start, horizon)
            spectra[kind] = model.rnn.eigenvalues()
    errors = {kind: error(predictions[kind], test.states) for kind in NAMES}
    whole = {kind: float(error(predictions[kind], test.states, over=(0, 1))) for kind in NAMES}
    numbers = {
        "step": STEP,
        "error": {kind: x.tolist() for kind, x in errors.items()},  # over the horizon
        "error_overall": whole,
        "eigenvalues": torch.view_as_real(spectra["mlp"]).tolist(),
    }
    return Result(_findings(errors, whole), numbers, _draw(test, predictions, errors, spectra["mlp"]))


def simulate(n: int, horizon: int) -> Data:
    """n pendulums, released at up to 2.5 rad with up to 1 rad per second, with random torques."""
    phi, omega = (2 * torch.rand(2, n, dtype=torch.float64) - 1) * torch.tensor([[2.5], [1.0]])
    torques = 2 * torch.rand(n, TORQUES, dtype=torch.float64) - 1
    x = torch.stack([phi, omega], dim=1)
    start, states = torch.cat([x, torques], dim=1), []
    for k in range(horizon):
        x = advance(x, torques[:, k * TORQUES // horizon])
        states.append(x)
    return Data(start.float(), torch.stack(states, dim=1).float())


def advance(x: Tensor, u: Tensor) -> Tensor:
    """S: the state (n, 2) one step later, by the classical Runge-Kutta method."""

    def slope(x: Tensor) -> Tensor:
        phi, omega = x.unbind(1)
        return torch.stack([omega, -torch.sin(phi) - DAMPING * omega + u], dim=1)

    a = slope(x)
    b = slope(x + STEP / 2 * a)
    c = slope(x + STEP / 2 * b)
    d = slope(x + STEP * c)
    return x + STEP / 6 * (a + 2 * b + 2 * c + d)


def learn(model: Koopman, data: Data, steps: int, progress: Progress, first: int, total: int) -> None:
    """Adam on random batches; the rate falls to zero along a cosine. Progress counts from `first`, of `total`."""
    scale = data.states.std((0, 1))
    adam = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for step in range(steps):
        progress("learning a pendulum", first + step, total)
        batch = torch.randint(len(data.start), (128,))
        deviation = (model(data.start[batch], data.states.shape[1]) - data.states[batch]) / scale
        loss = deviation.square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        schedule.step()
    progress("learning a pendulum", first + steps, total)


def best_linear(train: Data, start: Tensor) -> Tensor:
    """For each step a separate affine map of (x_0, ũ), with the least squared error on the training data."""

    def affine(x: Tensor) -> Tensor:
        return F.pad(x.double(), (0, 1), value=1.0)

    weights: Tensor = torch.linalg.lstsq(affine(train.start), train.states.double().flatten(1)).solution
    return (affine(start) @ weights).float().view(-1, *train.states.shape[1:])


def error(predicted: Tensor, states: Tensor, over: tuple[int, ...] = (0,)) -> Tensor:
    """Root of the squared error relative to the variance, mean over φ and φ': the mean as a prediction has 1."""
    variance = states.var((0, 1)) if 1 in over else states.var(0)
    return ((predicted - states).square().mean(over) / variance).mean(-1).sqrt()


def _findings(errors: dict[str, Tensor], whole: dict[str, float]) -> list[Finding]:
    ratio = errors["best"] / errors["mlp"]
    return [
        Finding(
            "an MLP makes a nonlinear system linear: MLP → linear RNN predicts what a linear RNN alone cannot",
            f"normalized error {whole['mlp']:.3f} against {whole['linear']:.3f}, on unseen starts and torques",
            whole["mlp"] < 0.5 * whole["linear"],
        ),
        Finding(
            "no linear RNN of any size could do it",
            f"the best linear prediction has {whole['best']:.3f}; at the last step MLP → linear RNN has "
            f"{errors['mlp'][-1]:.3f}, {ratio[-1]:.1f} times less than its {errors['best'][-1]:.3f}",
            whole["mlp"] < 0.5 * whole["best"] and float(ratio[-1]) > 1.5,
        ),
    ]


def _draw(test: Data, predictions: dict[str, Tensor], errors: dict[str, Tensor], lam: Tensor) -> Figure:
    figure, axes = subplots(1, 3, width=4.0, height=3.4)
    one, over, disk = axes[0]
    time = STEP * torch.arange(1, test.states.shape[1] + 1)
    widest = int(test.states[:, :, 0].abs().amax(1).argsort()[-len(test.states) // 20])  # a swing that is not small
    one.plot(time, test.states[widest, :, 0], color=BLACK, linewidth=2.5, alpha=0.5, label="pendulum")
    for kind in ("mlp", "linear"):
        one.plot(time, predictions[kind][widest, :, 0], color=COLOURS[kind], linestyle="--", label=NAMES[kind])
    one.set(xlabel="time, s", ylabel="angle φ, rad", title="An unseen swing")
    for kind, name in NAMES.items():
        over.plot(time, errors[kind], color=COLOURS[kind], linestyle=":" if kind == "best" else "-", label=name)
    over.set(xlabel="time, s", ylabel="normalized error", yscale="log", title="Error over the horizon")
    over.set_yticks((0.03, 0.1, 0.3, 1), ("0.03", "0.1", "0.3", "1"))
    over.minorticks_off()
    for ax in (one, over):
        ax.legend(frameon=False, fontsize="small")
    unit_circle(disk)
    disk.scatter(lam.real, lam.imag, s=12, color=BLUE)
    disk.set(xlim=(0.4, 1.1), ylim=(-0.1, 0.6), title="Λ of MLP → linear RNN")
    figure.suptitle("A pendulum with torque as MLP → linear RNN → linear map")
    return figure
