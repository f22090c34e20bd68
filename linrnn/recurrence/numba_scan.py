"""The scan on the CPU: Numba kernels.

The recurrence needs little arithmetic, so memory bandwidth decides its time. A row (a step) is read in vectors of 64
bytes along N, the rows ahead are prefetched, and large results are written past the cache, as a good `memcpy` does.
Sequences, and blocks of channels where sequences are few, are distributed over PyTorch's OpenMP threads, or over
threads of linrnn where PyTorch has none. Numba's threads are not used, because two threads must not enter them at once.
"""

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linrnn.recurrence import derived
from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.recurrence.numba_vectors import fence, load, prefetch, store, store_nontemporal, zero
from linrnn.util import threads as torch_threads
from linrnn.util.jit import jit

torch_threads.spin_less()  # before the first scan on a CPU
THREAD_NUMBERS = 1 << 20  # the size of u below which waking a second thread takes more time than it saves
NONTEMPORAL_BYTES = 1 << 22  # results from this size on are written past the cache
HUGE_PAGE_BYTES = 1 << 25  # Linux maps new memory for every result from this size on, page by page
MADV_HUGEPAGE = 14
BLOCK_CHANNELS = 64  # of the narrowest block: a multiple of every vector's width
TILE_STEPS = 8  # steps for which a vector of channels keeps its state in registers
FLUSH_STEPS = 256  # after which dλ moves from single to double precision: a multiple of TILE_STEPS


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, options: Options, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if bias is not None:
        u = u + bias
    if options.exclusive:
        return derived.exclusive_scan(scan, u, lam, initial, options)
    if options.offsets is not None:
        return derived.packed_scan(scan, u, lam, initial, options)
    states = _empty(u.shape, lam.dtype)
    carry = initial.clone(memory_format=torch.contiguous_format)
    arrays = [_flat(t, lam.dtype) for t in (u, lam, carry)]
    _run(_scan, u, [*arrays, _flags(options.resets), options.reverse, _flat(states, lam.dtype), _nontemporal(states)])
    return states.to(u.dtype), carry


def adds_bias(u: Tensor, options: Options) -> bool:
    return False


def scan_backward(grad_states: Tensor, grad_final: Tensor, solved: Solved, sum_u: bool = False) -> Gradients:
    states, lam, initial, options = solved
    if initial is None or options.offsets is not None:
        return derived.scan_backward(scan, grad_states, grad_final, solved, sum_u)
    grad_u = _empty(states.shape, lam.dtype)
    carry = grad_final.clone(memory_format=torch.contiguous_format)
    partials = torch.zeros_like(carry)
    grad_lam = torch.zeros_like(carry, dtype=torch.float64)  # of each sequence, summed in a fixed order below
    arrays = [_flat(t, lam.dtype) for t in (grad_states, states, lam, initial, carry)]
    outputs = [_flat(grad_u, lam.dtype), _flat(partials, lam.dtype), _flat(grad_lam, torch.float64)]
    _run(_scan_backward, states, [*arrays, _flags(options.resets), options.reverse, *outputs, _nontemporal(grad_u)])
    sums = derived.stack_sums(grad_lam.sum(dim=0).to(lam.dtype), grad_u, sum_u)
    return Gradients(grad_u.to(states.dtype), sums, carry)


def _empty(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A new tensor, in pages of 2 MB if it is large: mapping small pages takes longer than filling them."""
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes >= HUGE_PAGE_BYTES and (advise := _madvise()) is not None:
        page = mmap.PAGESIZE
        start = -(-tensor.data_ptr() // page) * page
        advise(ctypes.c_void_p(start), ctypes.c_size_t(tensor.data_ptr() + tensor.nbytes - start), MADV_HUGEPAGE)
    return tensor


@functools.cache
def _madvise() -> Any:
    return getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None


def _run(kernel: Callable[..., None], u: Tensor, arguments: list[Any]) -> None:
    """Run the kernel over all (sequence, block of channels) pairs, in as many threads as PyTorch uses.

    A free thread takes the next chunk of pairs, so that a thread without a core does not delay the others.
    """
    batch, length, _, n = u.shape
    threads = torch.get_num_threads() if u.numel() >= THREAD_NUMBERS else 1
    blocks = max(1, min(-(-4 * threads // max(batch, 1)), n // BLOCK_CHANNELS)) if threads > 1 else 1
    width = -(-n // blocks // BLOCK_CHANNELS) * BLOCK_CHANNELS if blocks > 1 else n
    units = batch * -(-n // width)
    chunk = max(1, units // (8 * threads)) if threads > 1 else max(1, units)
    starts = iter(range(0, units, chunk))  # `next` holds the interpreter lock: no two threads get the same chunk

    def work() -> None:
        for start in starts:
            kernel(*arguments, length, width, start, min(start + chunk, units))

    _together(work, min(threads, -(-units // chunk)))


def _together(work: Callable[[], None], threads: int) -> None:
    """Do the work in this thread and in other threads at once."""
    if threads > 1 and (team := torch_threads.team()) is not None:
        failures: list[BaseException] = []

        def member(_: int | None) -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        team(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(member), None, threads, 0)
        if failures:
            raise failures[0]
        return
    others = [_pool(os.getpid(), threads).submit(work) for _ in range(threads - 1)]
    work()
    for other in others:
        if not other.cancel():
            other.result()


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool for each process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="linrnn")


def _flat(t: Tensor, dtype: torch.dtype) -> Any:
    return t.detach().to(dtype).contiguous().view(-1).numpy()


def _flags(resets: Tensor | None) -> Any:
    return np.empty(0, dtype=np.bool_) if resets is None else resets.contiguous().view(-1).numpy()


def _nontemporal(out: Tensor) -> bool:
    lanes = 64 // out.itemsize
    return out.shape[-1] % lanes == 0 and out.nbytes >= NONTEMPORAL_BYTES and out.data_ptr() % 64 == 0


def _jit(function: Callable[..., None]) -> Any:
    return jit(function, error_model="numpy", fastmath={"contract"})


# The kernels. Arrays are flat: for each sequence and step the real parts, then the imaginary parts. A unit is a
# sequence and a block of channels. It processes tiles of steps; in a tile each vector of channels keeps its state in
# registers. `resets` is empty where there are none. The link between two neighbouring steps is cut where the later step
# starts a new sequence.


@_jit
def _scan(u, lam, carry, resets, reverse, states, nontemporal, length, width, first, last):
    N = lam.size // 2
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
                lr, li, xr, xi = load(lam, n), load(lam, m), load(carry, c + n), load(carry, c + m)
                for s in range(steps):
                    j = i + s * row
                    prefetch(u, j + ahead + n)
                    prefetch(u, j + ahead + m)
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        xr, xi = zero(xr), zero(xi)
                    xr, xi = _step(lr, li, xr, xi, load(u, j + n), load(u, j + m))
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
                    x = _step(lam[n], lam[m], carry[c + n], carry[c + m], u[j + n], u[j + m])
                    states[j + n], states[j + m] = carry[c + n], carry[c + m] = x
        if resets.size and reverse and length and resets[begin]:
            _clear(carry, c, N, start, stop)
    fence()


@_jit
def _step(lr, li, xr, xi, ur, ui):
    """λ·x + u."""
    return lr * xr - li * xi + ur, lr * xi + li * xr + ui


@_jit
def _scan_backward(
    grad, states, lam, initial, carry, resets, reverse, grad_u, d, grad_lam, nontemporal, length, width, first, last
):
    N = lam.size // 2
    lanes = 64 // states.itemsize
    row = 2 * N if reverse else -2 * N  # against the scan's direction
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * 2 * N, b * length
        if resets.size and reverse and length and resets[begin]:
            _clear(carry, c, N, start, stop)
        for t in range(0, length, TILE_STEPS):
            steps = min(TILE_STEPS, length - t)
            k = t if reverse else length - 1 - t
            i = (begin + k) * 2 * N
            ahead = TILE_STEPS * row if t + 2 * TILE_STEPS <= length else 0
            for n in range(start, stop_vectors, lanes):
                m = N + n
                lr, li, cr, ci = load(lam, n), load(lam, m), load(carry, c + n), load(carry, c + m)
                dr, di = load(d, c + n), load(d, c + m)
                for s in range(steps):
                    j = i + s * row
                    prefetch(grad, j + ahead + n)
                    prefetch(grad, j + ahead + m)
                    prefetch(states, j + ahead + n)
                    prefetch(states, j + ahead + m)
                    gr, gi = load(grad, j + n) + cr, load(grad, j + m) + ci
                    cr, ci = _conj_times(lr, li, gr, gi)
                    if nontemporal:
                        store_nontemporal(grad_u, j + n, gr)
                        store_nontemporal(grad_u, j + m, gi)
                    else:
                        store(grad_u, j + n, gr)
                        store(grad_u, j + m, gi)
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        cr, ci = zero(cr), zero(ci)
                    elif t + s < length - 1:
                        er, ei = _conj_times(load(states, j + row + n), load(states, j + row + m), gr, gi)
                        dr, di = dr + er, di + ei
                store(carry, c + n, cr)
                store(carry, c + m, ci)
                store(d, c + n, dr)
                store(d, c + m, di)
            for n in range(stop_vectors, stop):
                m = N + n
                for s in range(steps):
                    j = i + s * row
                    gr, gi = grad[j + n] + carry[c + n], grad[j + m] + carry[c + m]
                    carry[c + n], carry[c + m] = _conj_times(lam[n], lam[m], gr, gi)
                    grad_u[j + n], grad_u[j + m] = gr, gi
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        carry[c + n] = carry[c + m] = 0
                    elif t + s < length - 1:
                        er, ei = _conj_times(states[j + row + n], states[j + row + m], gr, gi)
                        d[c + n] += er
                        d[c + m] += ei
            if (t + steps) % FLUSH_STEPS == 0 or t + steps == length:
                for n in range(start, stop):
                    grad_lam[c + n] += d[c + n]
                    grad_lam[c + N + n] += d[c + N + n]
                _clear(d, c, N, start, stop)
        k = length - 1 if reverse else 0  # the first step of the scan, which starts from the initial state
        if length and not (resets.size and _cut(resets, begin, length, k, reverse)):
            i = (begin + k) * 2 * N
            for n in range(start, stop):
                m = N + n
                er, ei = _conj_times(initial[c + n], initial[c + m], grad_u[i + n], grad_u[i + m])
                grad_lam[c + n] += er
                grad_lam[c + m] += ei
    fence()


@_jit
def _conj_times(ar, ai, br, bi):
    """conj(a)·b."""
    return ar * br + ai * bi, ar * bi - ai * br


@_jit
def _unit(unit, width, N, lanes):
    """The sequence and the channels of a unit, and the end of its whole vectors."""
    blocks = -(-N // width)
    start = unit % blocks * width
    stop = min(N, start + width)
    return unit // blocks, start, stop, start + (stop - start) // lanes * lanes


@_jit
def _cut(resets, begin, length, k, reverse):
    """Whether the link between step k and the step before it, in the scan's direction, is cut."""
    later = k + 1 if reverse else k
    return later < length and resets[begin + later]


@_jit
def _clear(x, row, N, start, stop):
    x[row + start : row + stop] = 0
    x[row + N + start : row + N + stop] = 0
