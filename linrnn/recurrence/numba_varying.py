"""The scan with a λ for each step on the CPU: Numba kernels.

As in `numba_scan`, a vector of channels keeps its state in registers for a tile of steps, and large results are written
past the cache. There are separate kernels for real numbers and for planes.
"""

import torch
from torch import Tensor

from linrnn.recurrence.interface import Options
from linrnn.recurrence.numba_scan import (
    TILE_STEPS,
    _conj_times,
    _cut,
    _empty,
    _flags,
    _flat,
    _jit,
    _nontemporal,
    _run,
    _step,
    _unit,
)
from linrnn.recurrence.numba_vectors import fence, load, prefetch, store, store_nontemporal, zero


def scan(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    states = _empty(u.shape, lam.dtype)
    carry = initial.clone(memory_format=torch.contiguous_format)
    arrays = [_flat(t, lam.dtype) for t in (u, lam, carry)]
    kernel = _scan if u.shape[2] == 2 else _scan_real
    outputs = [_flat(states, lam.dtype), _nontemporal(states), u.shape[3]]
    _run(kernel, u, [*arrays, _flags(options.resets), options.reverse, *outputs])
    return states.to(u.dtype), carry


def scan_backward(
    grad_states: Tensor, grad_final: Tensor, states: Tensor, lam: Tensor, initial: Tensor, options: Options
) -> tuple[Tensor, Tensor, Tensor]:
    grad_u, grad_lam = (_empty(states.shape, lam.dtype) for _ in range(2))
    carry = grad_final.clone(memory_format=torch.contiguous_format)
    arrays = [_flat(t, lam.dtype) for t in (grad_states, states, lam, initial, carry)]
    outputs = [_flat(grad_u, lam.dtype), _flat(grad_lam, lam.dtype)]
    large = _nontemporal(grad_u) and _nontemporal(grad_lam)
    kernel = _scan_backward if states.shape[2] == 2 else _scan_backward_real
    _run(kernel, states, [*arrays, _flags(options.resets), options.reverse, *outputs, large, states.shape[3]])
    return grad_u.to(states.dtype), grad_lam, carry


@_jit
def _scan(u, lam, carry, resets, reverse, states, nontemporal, N, length, width, first, last):
    lanes = 64 // u.itemsize
    row = -2 * N if reverse else 2 * N  # from a step to the next, in the scan's direction
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * 2 * N, b * length
        for t in range(0, length, TILE_STEPS):
            steps = min(TILE_STEPS, length - t)
            k = length - 1 - t if reverse else t
            i = (begin + k) * 2 * N
            ahead = TILE_STEPS * row if t + 2 * TILE_STEPS <= length else 0
            for n in range(start, stop_vectors, lanes):
                m = N + n
                xr, xi = load(carry, c + n), load(carry, c + m)
                for s in range(steps):
                    j = i + s * row
                    prefetch(u, j + ahead + n)
                    prefetch(u, j + ahead + m)
                    prefetch(lam, j + ahead + n)
                    prefetch(lam, j + ahead + m)
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        xr, xi = zero(xr), zero(xi)
                    xr, xi = _step(load(lam, j + n), load(lam, j + m), xr, xi, load(u, j + n), load(u, j + m))
                    if nontemporal:
                        store_nontemporal(states, j + n, xr)
                        store_nontemporal(states, j + m, xi)
                    else:
                        store(states, j + n, xr)
                        store(states, j + m, xi)
                store(carry, c + n, xr)
                store(carry, c + m, xi)
            for n in range(stop_vectors, stop):
                m = N + n
                for s in range(steps):
                    j = i + s * row
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        carry[c + n] = carry[c + m] = 0
                    x = _step(lam[j + n], lam[j + m], carry[c + n], carry[c + m], u[j + n], u[j + m])
                    states[j + n], states[j + m] = carry[c + n], carry[c + m] = x
        if resets.size and reverse and length and resets[begin]:
            carry[c + start : c + stop] = 0
            carry[c + N + start : c + N + stop] = 0
    fence()


@_jit
def _scan_real(u, lam, carry, resets, reverse, states, nontemporal, N, length, width, first, last):
    lanes = 64 // u.itemsize
    row = -N if reverse else N
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * N, b * length
        for t in range(0, length, TILE_STEPS):
            steps = min(TILE_STEPS, length - t)
            k = length - 1 - t if reverse else t
            i = (begin + k) * N
            ahead = TILE_STEPS * row if t + 2 * TILE_STEPS <= length else 0
            for n in range(start, stop_vectors, lanes):
                x = load(carry, c + n)
                for s in range(steps):
                    j = i + s * row + n
                    prefetch(u, j + ahead)
                    prefetch(lam, j + ahead)
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        x = zero(x)
                    x = load(lam, j) * x + load(u, j)
                    if nontemporal:
                        store_nontemporal(states, j, x)
                    else:
                        store(states, j, x)
                store(carry, c + n, x)
            for n in range(stop_vectors, stop):
                for s in range(steps):
                    j = i + s * row + n
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        carry[c + n] = 0
                    states[j] = carry[c + n] = lam[j] * carry[c + n] + u[j]
        if resets.size and reverse and length and resets[begin]:
            carry[c + start : c + stop] = 0
    fence()


# The gradients. From the last step of the scan to the first, with g the total gradient of the state of a step: g is the
# gradient of u, conj(previous state) ⊙ g is the gradient of λ, and conj(λ) ⊙ g is passed to the previous state.


@_jit
def _scan_backward(
    grad, states, lam, initial, carry, resets, reverse, grad_u, grad_lam, nontemporal, N, length, width, first, last
):
    lanes = 64 // states.itemsize
    row = 2 * N if reverse else -2 * N  # against the scan's direction
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * 2 * N, b * length
        if resets.size and reverse and length and resets[begin]:
            carry[c + start : c + stop] = 0
            carry[c + N + start : c + N + stop] = 0
        for t in range(0, length, TILE_STEPS):
            steps = min(TILE_STEPS, length - t)
            k = t if reverse else length - 1 - t
            i = (begin + k) * 2 * N
            ahead = TILE_STEPS * row if t + 2 * TILE_STEPS <= length else 0
            for n in range(start, stop_vectors, lanes):
                m = N + n
                cr, ci = load(carry, c + n), load(carry, c + m)
                for s in range(steps):
                    j = i + s * row
                    prefetch(grad, j + ahead + n)
                    prefetch(grad, j + ahead + m)
                    prefetch(states, j + ahead + n)
                    prefetch(states, j + ahead + m)
                    prefetch(lam, j + ahead + n)
                    prefetch(lam, j + ahead + m)
                    gr, gi = load(grad, j + n) + cr, load(grad, j + m) + ci
                    cr, ci = _conj_times(load(lam, j + n), load(lam, j + m), gr, gi)
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        cr, ci, dr, di = zero(cr), zero(ci), zero(cr), zero(ci)
                    elif t + s < length - 1:
                        dr, di = _conj_times(load(states, j + row + n), load(states, j + row + m), gr, gi)
                    else:
                        dr, di = _conj_times(load(initial, c + n), load(initial, c + m), gr, gi)
                    if nontemporal:
                        store_nontemporal(grad_u, j + n, gr)
                        store_nontemporal(grad_u, j + m, gi)
                        store_nontemporal(grad_lam, j + n, dr)
                        store_nontemporal(grad_lam, j + m, di)
                    else:
                        store(grad_u, j + n, gr)
                        store(grad_u, j + m, gi)
                        store(grad_lam, j + n, dr)
                        store(grad_lam, j + m, di)
                store(carry, c + n, cr)
                store(carry, c + m, ci)
            for n in range(stop_vectors, stop):
                m = N + n
                for s in range(steps):
                    j = i + s * row
                    gr, gi = grad[j + n] + carry[c + n], grad[j + m] + carry[c + m]
                    grad_u[j + n], grad_u[j + m] = gr, gi
                    carry[c + n], carry[c + m] = _conj_times(lam[j + n], lam[j + m], gr, gi)
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        carry[c + n] = carry[c + m] = 0
                        grad_lam[j + n] = grad_lam[j + m] = 0
                    elif t + s < length - 1:
                        d = _conj_times(states[j + row + n], states[j + row + m], gr, gi)
                        grad_lam[j + n], grad_lam[j + m] = d
                    else:
                        grad_lam[j + n], grad_lam[j + m] = _conj_times(initial[c + n], initial[c + m], gr, gi)
    fence()


@_jit
def _scan_backward_real(
    grad, states, lam, initial, carry, resets, reverse, grad_u, grad_lam, nontemporal, N, length, width, first, last
):
    lanes = 64 // states.itemsize
    row = N if reverse else -N
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * N, b * length
        if resets.size and reverse and length and resets[begin]:
            carry[c + start : c + stop] = 0
        for t in range(0, length, TILE_STEPS):
            steps = min(TILE_STEPS, length - t)
            k = t if reverse else length - 1 - t
            i = (begin + k) * N
            ahead = TILE_STEPS * row if t + 2 * TILE_STEPS <= length else 0
            for n in range(start, stop_vectors, lanes):
                x = load(carry, c + n)
                for s in range(steps):
                    j = i + s * row + n
                    prefetch(grad, j + ahead)
                    prefetch(states, j + ahead)
                    prefetch(lam, j + ahead)
                    g = load(grad, j) + x
                    x = load(lam, j) * g
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        x, d = zero(x), zero(x)
                    elif t + s < length - 1:
                        d = load(states, j + row) * g
                    else:
                        d = load(initial, c + n) * g
                    if nontemporal:
                        store_nontemporal(grad_u, j, g)
                        store_nontemporal(grad_lam, j, d)
                    else:
                        store(grad_u, j, g)
                        store(grad_lam, j, d)
                store(carry, c + n, x)
            for n in range(stop_vectors, stop):
                for s in range(steps):
                    j = i + s * row + n
                    g = grad[j] + carry[c + n]
                    grad_u[j] = g
                    carry[c + n] = lam[j] * g
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        carry[c + n] = grad_lam[j] = 0
                    elif t + s < length - 1:
                        grad_lam[j] = states[j + row] * g
                    else:
                        grad_lam[j] = initial[c + n] * g
    fence()
