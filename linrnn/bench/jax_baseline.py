"""The scan and the training step in plain JAX, with `associative_scan`: a separate process that reads jobs as JSON.

The model is linrnn's: batch norm, LRU, gelu, GLU and skip in every block, mean pooling, AdamW; its parameters are
float32 and its states complex64. It does less work than linrnn's: no dropout, no padding, no running statistics.
"""
# mypy: disable-error-code="import-not-found"

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Parameters = dict[str, Any]


def scan(lam: Any, u: Any, reverse: bool = False) -> Any:
    """x_k = λ·x_{k-1} + u_k: lam (N,) or (batch, length, N), u (batch, length, N)."""

    def join(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def one(lam: Any, sequence: Any) -> Any:
        return jax.lax.associative_scan(join, (jnp.broadcast_to(lam, sequence.shape), sequence), reverse=reverse)[1]

    return jax.vmap(one, in_axes=(0 if lam.ndim == 3 else None, 0))(lam, u)


def time_scan(job: Parameters) -> dict[str, float]:
    batch, length, n = job["shape"]
    rng = np.random.default_rng(0)
    factor = np.float32(0) if job["real"] else np.complex64(1j)
    u, grad = (jnp.asarray(_normal(rng, batch, length, n) + factor * _normal(rng, batch, length, n)) for _ in range(2))
    lam = jnp.asarray(np.exp(-0.1 + factor * np.linspace(0, 6, n)).astype(u.dtype))
    if job["varying"]:
        lam = jnp.broadcast_to(lam, u.shape).copy()
    forward = jax.jit(scan)
    both = jax.jit(lambda lam, u, grad: jax.vjp(scan, lam, u)[1](grad))
    return {
        "forward_ms": 1e3 / per_second(lambda: forward(lam, u), 0.5),
        "with_backward_ms": 1e3 / per_second(lambda: both(lam, u, grad), 0.5),
    }


def time_training(job: Parameters) -> dict[str, float]:
    rng = np.random.default_rng(0)
    state: Any = jax.tree.map(jnp.asarray, make_parameters(rng, job))
    state = (state, jax.tree.map(jnp.zeros_like, state), jax.tree.map(jnp.zeros_like, state), jnp.zeros(()))
    rows, length = job["batch"] * job["documents"], job["length"]
    if job["vocabulary"] is None:
        inputs = _normal(rng, rows, length, job["channels"])
    else:
        inputs = rng.integers(job["vocabulary"], size=(rows, length), dtype=np.int32)
    inputs, targets = jnp.asarray(inputs), jnp.asarray(rng.integers(job["classes"], size=job["batch"]))
    step = jax.jit(lambda state, inputs, targets: adamw(state, inputs, targets, job), donate_argnums=0)

    def advance() -> Any:
        nonlocal state
        loss, state = step(state, inputs, targets)
        return loss

    return {"steps_per_second": per_second(advance, job["seconds"]), "loss": float(advance())}


def make_parameters(rng: Any, job: Parameters) -> Parameters:
    H, N, directions = job["H"], job["N"], 2 if job["bidirectional"] else 1
    inputs = job["channels"] if job["vocabulary"] is None else job["vocabulary"]
    gated = H if job["half_glu"] else 2 * H

    def block() -> Parameters:
        nu = -0.5 * np.log(rng.uniform(0.81, 0.998, N))
        return {
            "scale": np.ones(H, np.float32),
            "shift": np.zeros(H, np.float32),
            "nu_log": np.log(nu).astype(np.float32),
            "theta_log": np.log(rng.uniform(0.01, 6.28, N)).astype(np.float32),
            "gamma_log": (0.5 * np.log(-np.expm1(-2 * nu))).astype(np.float32),
            "B": _normal(rng, 2, H, N) / math.sqrt(2 * H),
            "C": _normal(rng, 2, directions * N, H) / math.sqrt(directions * N),
            "D": _normal(rng, H),
            "W": _normal(rng, H, gated) / math.sqrt(H),
            "b": np.zeros(gated, np.float32),
        }

    widths = [H, job["classes"]] if job["documents"] == 1 else [4 * H, H, job["classes"]]
    return {
        "encoder": _normal(rng, inputs, H),
        "blocks": [block() for _ in range(job["depth"])],
        "head": [_normal(rng, a, b) / math.sqrt(a) for a, b in itertools.pairwise(widths)],
    }


def model(parameters: Parameters, inputs: Any, job: Parameters) -> Any:
    """Logits (batch, classes)."""
    encoder = parameters["encoder"]
    x = inputs @ encoder if job["vocabulary"] is None else encoder[inputs]
    for p in parameters["blocks"]:
        h = jax.nn.gelu(lru(p, (x - x.mean((0, 1))) * jax.lax.rsqrt(x.var((0, 1)) + 1e-5) * p["scale"] + p["shift"]))
        g = h @ p["W"] + p["b"]
        value, gate = (h, g) if job["half_glu"] else jnp.split(g, 2, axis=-1)
        x = x + value * jax.nn.sigmoid(gate)
    x = x.mean(1)
    if job["documents"] == 2:
        a, b = x[0::2], x[1::2]
        x = jax.nn.gelu(jnp.concatenate([a, b, a - b, a * b], axis=-1) @ parameters["head"][0])
    return x @ parameters["head"][-1]


def lru(p: Parameters, u: Any) -> Any:
    lam = jnp.exp(jax.lax.complex(-jnp.exp(p["nu_log"]), jnp.exp(p["theta_log"])))
    B = p["B"] * jnp.exp(p["gamma_log"])
    Bu = jax.lax.complex(u @ B[0], u @ B[1])
    x = scan(lam, Bu)
    if p["C"].shape[1] == 2 * len(lam):
        x = jnp.concatenate([x, scan(lam, Bu, reverse=True)], axis=-1)
    return x.real @ p["C"][0] - x.imag @ p["C"][1] + p["D"] * u


def adamw(state: Any, inputs: Any, targets: Any, job: Parameters, rate: float = 1e-3) -> tuple[Any, Any]:
    """One training step: the loss, and the next state."""
    parameters, first, second, count = state

    def loss_of(parameters: Parameters) -> Any:
        logits = jax.nn.log_softmax(model(parameters, inputs, job))
        return -jnp.take_along_axis(logits, targets[:, None], axis=1).mean()

    loss, grads = jax.value_and_grad(loss_of)(parameters)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

    def update(p: Any, m: Any, v: Any) -> Any:
        step = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        return p - rate * (step + 0.05 * p)

    return loss, (jax.tree.map(update, parameters, first, second), first, second, count)


def per_second(run: Callable[[], Any], seconds: float) -> float:
    """Calls per second, measured over about this many seconds."""
    for _ in range(2):
        jax.block_until_ready(run())
    start = time.perf_counter()
    jax.block_until_ready(run())
    calls = max(1, round(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        last = run()
    jax.block_until_ready(last)
    return calls / (time.perf_counter() - start)


def _normal(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def main() -> None:
    asked = json.load(sys.stdin)
    backend = jax.default_backend()
    if asked["device"] == "cuda" and backend != "gpu":
        sys.exit(f"it sees no GPU, only {backend}")
    kinds = {"scan": time_scan, "train": time_training}
    for job in asked["jobs"]:
        try:
            result: dict[str, Any] = dict(kinds[job["kind"]](job))
        except Exception as error:  # the next job may still run
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps({**result, "version": jax.__version__, "backend": backend}), flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
