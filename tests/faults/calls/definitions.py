"""What calls give by their definition, in NumPy and double precision."""

from typing import Any

import numpy as np
from torch import Tensor

from tests.helpers import Array, array


def expected(name: str, given: dict[str, Any]) -> tuple[Array, ...] | None:
    """The results of a call of this name; None for a call without a definition here."""
    scans = {"scan": _complex, "scan, varying": _complex, "scan_planes": _planes, "scan_planes, varying": _planes}
    if name not in scans or given["u"].is_meta:
        return None
    return scans[name](given)


def _complex(given: dict[str, Any]) -> tuple[Array, ...]:
    u, lam = array(given["u"]), array(given["lam"])
    initial = np.zeros_like(u[:, :1]).sum(1) if given["initial"] is None else array(given["initial"])
    return _loop(u, lam, initial, given["resets"], given["reverse"])


def _planes(given: dict[str, Any]) -> tuple[Array, ...]:
    def joined(x: Tensor) -> Array:
        return np.ascontiguousarray(np.moveaxis(array(x), -2, -1)).view(np.complex128)[..., 0]

    u, lam = joined(given["u"]), joined(given["lam"])
    initial = np.zeros_like(u[:, :1]).sum(1) if given["initial"] is None else joined(given["initial"])
    states, final = _loop(u, lam, initial, given["resets"], given["reverse"])
    return np.stack([states.real, states.imag], axis=-2), np.stack([final.real, final.imag], axis=-2)


def _loop(u: Array, lam: Array, x: Array, resets: Tensor | None, reverse: bool) -> tuple[Array, Array]:
    """x_k = λ_k·x_{k-1} + u_k, step by step. With `reverse` a reset at step k + 1 cuts the link from it to step k."""
    lam = np.broadcast_to(lam, u.shape)
    cuts = np.zeros(u.shape[:2], bool) if resets is None else resets.numpy()
    states = np.zeros_like(u)
    with np.errstate(invalid="ignore", over="ignore"):
        return _steps(u, lam, x, cuts, reverse, states)


def _steps(u: Array, lam: Array, x: Array, cuts: Array, reverse: bool, states: Array) -> tuple[Array, Array]:
    length = u.shape[1]
    for k in reversed(range(length)) if reverse else range(length):
        link = k + 1 if reverse else k  # to the step before, in the direction of the scan
        cut = cuts[:, link] if link < length else np.zeros(len(u), bool)
        x = lam[:, k] * np.where(cut[:, None], 0, x) + u[:, k]
        states[:, k] = x
    if reverse and length:
        x = np.where(cuts[:, :1], 0, x)
    return states, x
