"""Oracles in NumPy, one step at a time and in double precision, that share no code with linrnn."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import linrnn

Array = npt.NDArray[Any]


def array(x: Tensor) -> Array:
    """In double precision: float64 or complex128."""
    x = x.detach()
    return x.to(torch.complex128 if x.is_complex() else torch.float64).numpy()


def relative_error(came: Tensor | Array, expected: Tensor | Array) -> float:
    """The largest deviation, relative to the largest number expected. NaN counts as infinite."""
    a, b = (array(x) if isinstance(x, Tensor) else x for x in (came, expected))
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    if b.size == 0:
        return 0.0
    error = float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-300))
    return np.inf if np.isnan(error) else error


def eigenvalues(layer: linrnn.LRU) -> Array:
    """Λ from the raw parameters, complex128 (N,)."""
    p = {name: array(parameter) for name, parameter in layer.named_parameters()}
    if "nu_log" in p:
        return np.asarray(np.exp(-np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"])))
    if "nu" in p:
        return np.asarray(np.exp(-p["nu"] + 1j * p["theta"]))
    return np.asarray(p["lam"][0] + 1j * p["lam"][1])


def input_matrix(layer: linrnn.LRU) -> Array:
    """γ ⊙ B from the raw parameters, complex128 (N, H)."""
    B = array(layer.B)
    gamma = np.ones(layer.d_state) if layer.gamma_log is None else np.exp(array(layer.gamma_log))
    return np.asarray(gamma[:, None] * (B[0] + 1j * B[1]))


def output_matrix(layer: linrnn.LRU) -> Array:
    """C, complex128 (H, N), or (H, 2N) if bidirectional."""
    C = array(layer.C)
    return np.asarray(C[:, 0] + 1j * C[:, 1])


def lru_sequence(layer: linrnn.LRU, u: Array, initial: Array) -> tuple[Array, Array]:
    """The paper's equation on one sequence: u (length, H) and initial (2, N) to y and the final state."""
    lam, B, C = eigenvalues(layer), input_matrix(layer), output_matrix(layer)
    forward, final = _states(lam, u @ B.T, initial[0] + 1j * initial[1])
    if layer.bidirectional:
        backward, _ = _states(lam, (u @ B.T)[::-1], np.zeros_like(lam))
        forward = np.concatenate([forward, backward[::-1]], axis=1)
    y = (forward @ C.T).real + array(layer.D) * u
    return y, np.stack([final.real, final.imag])


def rnn_sequence(layer: linrnn.RNN, u: Array, initial: Array) -> tuple[Array, Array]:
    """The dense RNN on one sequence: u (length, H) and initial (N,) to y and the final state."""
    sigmas: dict[str, Callable[[Array], Array]] = {
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "linear": lambda x: x,
    }
    sigma = sigmas[layer.nonlinearity]
    A, B, C, D = (array(p) for p in (layer.A, layer.B, layer.C, layer.D))

    def states(u: Array, x: Array) -> Array:
        result = []
        for u_k in u:
            x = sigma(A @ x + B @ u_k)
            result.append(x)
        return np.array(result).reshape(len(u), layer.d_state)

    x = states(u, initial)
    final = x[-1] if len(u) else initial
    if layer.bidirectional:
        x = np.concatenate([x, states(u[::-1], np.zeros(layer.d_state))[::-1]], axis=1)
    return x @ C.T + u @ D.T, final


def oracle(
    layer: linrnn.LRU | linrnn.RNN,
    u: Tensor,
    state: Tensor | None = None,
    lengths: list[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Array, Array]:
    """What a core should give, by running every sequence of the batch alone, cut at its length and its resets."""
    inputs = array(u)
    y, finals = np.zeros(u.shape), []
    for b in range(u.shape[0]):
        final = np.zeros(layer.state_shape) if state is None else array(state[b])
        for start, stop, fresh in pieces(u.shape[1] if lengths is None else lengths[b], resets, b):
            initial = np.zeros(layer.state_shape) if fresh else final
            run: Any = lru_sequence if isinstance(layer, linrnn.LRU) else rnn_sequence
            y[b, start:stop], final = run(layer, inputs[b, start:stop], initial)
        finals.append(final)
    return y, np.array(finals).reshape(u.shape[0], *layer.state_shape)


def pieces(length: int, resets: Tensor | None, b: int) -> Iterator[tuple[int, int, bool]]:
    """Start, stop and whether it starts afresh, for each sequence packed into row b."""
    cuts = [] if resets is None else [k for k in range(length) if bool(resets[b, k])]
    edges = sorted({0, *cuts, length})
    for start, stop in itertools.pairwise(edges):
        yield start, stop, start in cuts


def gradients(module: nn.Module, loss: Tensor, *others: Tensor) -> dict[str, Tensor]:
    """Of all parameters by name, then of other tensors by number."""
    named = dict(module.named_parameters()) | {str(i): x for i, x in enumerate(others)}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def _states(lam: Array, v: Array, x: Array) -> tuple[Array, Array]:
    states = np.zeros((len(v), len(lam)), dtype=np.complex128)
    for k in range(len(v)):
        x = lam * x + v[k]
        states[k] = x
    return states, x


class Operations(TorchDispatchMode):
    """The names of what runs inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
