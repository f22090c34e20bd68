"""Learning one long convolution kernel with a linear and with a tanh RNN (the paper's appendix on optimization).

The task: 32 inputs u_k = sin(0.05·a·k)·cos(0.05·c·k)² of length 100, and as outputs their convolutions with
h_k = exp(-0.015·k)·cos(0.04·k)² / 10. The learner: one RNN with 100 states, x_k = σ(A·x_{k-1} + B·u_k),
y_k = C·x_k + D·u_k, σ linear or tanh, and Adam. A, B and C start with the paper's Glorot variance, 1/(number of
inputs), and D at 0. The paper claims that for every learning rate of its grid the linear one converges faster.

The paper gives neither the range of a and c nor the grid of rates, so several of each are tried. A comparison uses ten
starts, the same for both RNNs, and the area under the loss curve: the mean over iterations of log₁₀ of the loss,
relative to the outputs' power. An RNN wins if the difference of the areas is more than two standard errors over the
starts; otherwise there is a tie.
"""

import statistics
from typing import Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor

from linrnn.cores.rnn import RNN
from linrnn.paper.figures.base import Finding, Result
from linrnn.tasks.base import Progress
from linrnn.util.style import BLACK, BLUE, ORANGE, subplots

Sigma = Literal["linear", "tanh"]
Curves = dict[Sigma, list[list[float]]]  # of each start, the loss before each step and after the last

LENGTH, TRAJECTORIES, STATES = 100, 32, 100
RANGES = (2.0, 10.0)  # a and c are uniform from 0 to these
LARGEST = 1e9  # the value of a loss that is not finite
COLOURS: dict[Sigma, str] = {"linear": BLUE, "tanh": ORANGE}


def run(*, quick: bool, seed: int, progress: Progress) -> Result:
    """Loss curves of both RNNs from the same starts, for each range of the inputs and each rate."""
    rates = (1e-3,) if quick else (3e-4, 1e-3, 3e-3)
    starts, steps = (3, 40) if quick else (10, 200)
    jobs = [(end, rate, sigma) for end in RANGES for rate in rates for sigma in COLOURS]
    curves: dict[tuple[float, float], Curves] = {(end, rate): {} for end in RANGES for rate in rates}
    for done, (end, rate, sigma) in enumerate(jobs):
        progress("learning a kernel", done, len(jobs))
        torch.manual_seed(seed)
        u = inputs(end)
        losses = learn(sigma, initial(starts, seed + 1), u, convolve(u, target_kernel()), rate, steps)
        losses = losses.nan_to_num(LARGEST).clamp(max=LARGEST)
        curves[end, rate][sigma] = [[float(f"{loss:.4g}") for loss in each] for each in losses.T.tolist()]
    progress("learning a kernel", len(jobs), len(jobs))

    compared = {case: compare(of) for case, of in curves.items()}
    numbers = {
        "ranges": list(RANGES),
        "rates": list(rates),
        "starts": starts,
        "kernel": target_kernel().tolist(),
        "cases": [
            {"range": end, "rate": rate, "tanh_less_linear": compared[end, rate], "losses": of}
            for (end, rate), of in curves.items()
        ],
    }
    return Result(_findings(curves, compared), numbers, _draw(curves, compared))


def target_kernel() -> Tensor:
    """h, (length,)."""
    k = torch.arange(LENGTH, dtype=torch.float32)
    return 0.1 * torch.exp(-0.015 * k) * torch.cos(0.04 * k) ** 2


def inputs(end: float) -> Tensor:
    """(trajectories, length)."""
    k = torch.arange(LENGTH, dtype=torch.float32)
    a, c = end * torch.rand(2, TRAJECTORIES, 1)
    return torch.sin(0.05 * a * k) * torch.cos(0.05 * c * k) ** 2


def convolve(u: Tensor, h: Tensor) -> Tensor:
    """y_k = Σ_j h_j·u_{k-j} over the last dimension."""
    n = 2 * LENGTH  # padding, so that the end does not wrap around to the beginning
    y: Tensor = torch.fft.irfft(torch.fft.rfft(u, n) * torch.fft.rfft(h, n), n)
    return y[..., :LENGTH]


def initial(starts: int, seed: int) -> list[Tensor]:
    """The initial A, B and C of RNNs, and D = 0; one RNN for each index of the first dimension."""
    torch.manual_seed(seed)
    rnns = [RNN(1, STATES) for _ in range(starts)]
    A, B, C, D = (torch.stack([rnn.get_parameter(name).detach() for rnn in rnns]) for name in "ABCD")
    return [A, B, C, torch.zeros_like(D)]


def outputs(sigma: Sigma, parameters: list[Tensor], u: Tensor) -> Tensor:
    """The outputs of each RNN for u, (starts, trajectories, length)."""
    A, B, C, D = parameters
    if sigma == "linear":
        return convolve(u, response(A, B, C)) + D * u
    x, states = u.new_zeros(len(A), len(u), STATES), []
    for Bu in (u.T.unsqueeze(-1) @ B.mT.unsqueeze(1)).unbind(1):
        x = torch.tanh(torch.baddbmm(Bu, x, A.mT))
        states.append(x)
    return (torch.stack(states, dim=2) @ C.mT.unsqueeze(1)).squeeze(-1) + D * u


def response(A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """C·A^k·B, (starts, 1, length): with one input and output, the fastest form of a linear RNN."""
    states, power = B, A
    while states.shape[-1] < LENGTH:  # B, AB, A²B, ...: twice as many each time
        states = torch.cat([states, power @ states], dim=-1)
        power = power @ power
    return C @ states[..., :LENGTH]


def learn(sigma: Sigma, parameters: list[Tensor], u: Tensor, y: Tensor, rate: float, steps: int) -> Tensor:
    """The squared error relative to the outputs' power, before each step and after the last: (steps + 1, starts).

    Adam scales each number separately, so the starts are independent.
    """
    parameters = [parameter.clone().requires_grad_() for parameter in parameters]
    adam = torch.optim.Adam(parameters, lr=rate)
    losses = []
    for _ in range(steps + 1):
        loss = (outputs(sigma, parameters, u) - y).square().mean((1, 2)) / y.square().mean()
        losses.append(loss.detach())
        adam.zero_grad()
        loss.sum().backward()
        adam.step()
    return torch.stack(losses)


def area(losses: list[float]) -> float:
    """The mean of log₁₀ of the loss over iterations."""
    return float(torch.tensor(losses).clamp(min=1 / LARGEST).log10().mean())


def compare(curves: Curves) -> tuple[float, float]:
    """The area of the tanh RNN minus the area of the linear RNN: the mean over starts and its standard error."""
    differences = [area(tanh) - area(linear) for linear, tanh in zip(curves["linear"], curves["tanh"], strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def verdict(difference: tuple[float, float]) -> str:
    """Who converges faster: "linear", "tanh", or a "tie" within two standard errors."""
    mean, error = difference
    return "tie" if abs(mean) <= 2 * error else "linear" if mean > 0 else "tanh"


def _findings(
    curves: dict[tuple[float, float], Curves], compared: dict[tuple[float, float], tuple[float, float]]
) -> list[Finding]:
    verdicts = {case: verdict(difference) for case, difference in compared.items()}
    by_range = [
        f"inputs up to {end:g}: "
        + ", ".join(
            f"{verdicts[end, rate]} at {rate:g} ({mean:+.2f} ± {error:.2f})"
            for (other, rate), (mean, error) in compared.items()
            if other == end
        )
        for end in RANGES
    ]
    lowest: dict[float, dict[Sigma, float]] = {
        end: {
            sigma: min(statistics.median(map(min, of[sigma])) for (other, _), of in curves.items() if other == end)
            for sigma in COLOURS
        }
        for end in RANGES
    }
    return [
        Finding(
            "at every learning rate of the grid the linear RNN converges faster than the tanh RNN",
            f"{list(verdicts.values()).count('linear')} of {len(verdicts)} cases linear, "
            f"{list(verdicts.values()).count('tie')} ties; it depends on range and rate, by the difference of "
            f"the areas (log₁₀ of the loss): {'; '.join(by_range)}",
            "tanh" not in verdicts.values() and "linear" in verdicts.values(),
        ),
        Finding(
            "the linear RNN does better also when the rate is tuned",
            "lowest loss, median over starts at the best rate of each: "
            + "; ".join(
                f"{of['linear']:.2g} against {of['tanh']:.2g} with inputs up to {e:g}" for e, of in lowest.items()
            ),
            all(of["linear"] <= of["tanh"] for of in lowest.values()),
        ),
    ]


def _draw(
    curves: dict[tuple[float, float], Curves], compared: dict[tuple[float, float], tuple[float, float]]
) -> Figure:
    rates = list(dict.fromkeys(rate for _, rate in curves))
    figure, axes = subplots(len(RANGES), 1 + len(rates), width=3.4, height=3.0)
    axes[0, 0].plot(target_kernel(), color=BLACK)
    axes[0, 0].set(xlabel="k", ylabel="h_k", title="The kernel to learn")
    for i in range(1, len(RANGES)):
        axes[i, 0].axis("off")
        axes[i, 0].text(0, 0.5, "One line for each start.\nTitle: who converges faster,\nby the area under log₁₀ loss.")
    for i, end in enumerate(RANGES):
        for j, rate in enumerate(rates, start=1):
            for sigma, colour in COLOURS.items():
                for n, losses in enumerate(curves[end, rate][sigma]):
                    axes[i, j].plot(losses, color=colour, linewidth=1, alpha=0.7, label=None if n else sigma)
            title = f"a, c up to {end:g}, rate {rate:g}: {verdict(compared[end, rate])}"
            axes[i, j].set(xlabel="iteration", yscale="log", ylim=(1e-4, 100), title=title)
        axes[i, 1].set_ylabel("loss / power of the outputs")
    axes[0, 1].legend(frameon=False)
    figure.suptitle("Learning a long convolution with a linear and with a tanh RNN")
    return figure
