"""The scan on the CPU: Numba kernels.

The recurrence does little arithmetic, so its speed is that of memory. Each row (a step) is walked in vectors of 64
bytes along N, with the rows ahead prefetched, and large results are written past the cache, as a good `memcpy` does.
Sequences, and where those are few blocks of channels, are shared among threads of our own: Numba's thread pools must
not be entered from two threads at once, these may.
"""

import functools
import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model
from torch import Tensor

SHARE = 1 << 14  # elements of u below which a second thread costs more than it brings
STREAM = 1 << 22  # bytes from which results are written past the cache
BLOCK = 64  # channels in the narrowest block: a multiple of every vector's width
FLUSH = 256  # steps after which dλ moves from single to double precision


def scan(u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    states = torch.empty(u.shape, dtype=lam.dtype)
    carry = initial.clone(memory_format=torch.contiguous_format)
    arrays = [_rows(t, lam.dtype) for t in (u, lam, carry)]
    _share(_scan, u, [*arrays, _flags(resets), reverse, _rows(states, lam.dtype), _stream(states)])
    return states.to(u.dtype), carry


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_u = torch.empty(states.shape, dtype=lam.dtype)
    carry = grad_final.clone(memory_format=torch.contiguous_format)
    partial = torch.zeros_like(carry)
    grad_lam = torch.zeros_like(carry, dtype=torch.float64)  # for each sequence; summed in a fixed order below
    arrays = [_rows(t, lam.dtype) for t in (grad_states, states, lam, initial, carry)]
    outputs = [_rows(grad_u, lam.dtype), _rows(partial, lam.dtype), _rows(grad_lam, torch.float64)]
    _share(_scan_backward, states, [*arrays, _flags(resets), reverse, *outputs, _stream(grad_u)])
    return grad_u.to(states.dtype), grad_lam.sum(dim=0).to(lam.dtype), carry


def _share(kernel: Callable[..., None], u: Tensor, arguments: list[Any]) -> None:
    """Run the kernel over all (sequence, block of channels) pairs, in as many threads as PyTorch would use."""
    batch, _, _, n = u.shape
    threads = torch.get_num_threads() if u.numel() >= SHARE else 1
    blocks = max(1, min(-(-4 * threads // max(batch, 1)), n // BLOCK)) if threads > 1 and batch < 4 * threads else 1
    width = -(-n // blocks // BLOCK) * BLOCK if blocks > 1 else n
    units = batch * -(-n // width)
    edges = [units * i // threads for i in range(threads + 1)]
    pieces = [(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if a < b]
    others = [_pool(os.getpid(), threads).submit(kernel, *arguments, width, a, b) for a, b in pieces[1:]]
    for a, b in pieces[:1]:
        kernel(*arguments, width, a, b)
    for other in others:
        other.result()


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="linrnn")


def _rows(t: Tensor, dtype: torch.dtype) -> Any:
    """Planes as a NumPy array of rows: (..., 2, N) to (..., 2N)."""
    return t.detach().to(dtype).contiguous().flatten(-2).numpy()


def _flags(resets: Tensor | None) -> Any:
    return np.empty((0, 0), dtype=np.bool_) if resets is None else resets.contiguous().numpy()


def _stream(out: Tensor) -> bool:
    lanes = 64 // out.itemsize
    return out.shape[-1] % lanes == 0 and out.nbytes >= STREAM and out.data_ptr() % 64 == 0


def _jit(function: Callable[..., None]) -> Any:
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to keep the compiled code: compile in each process
        return numba.njit(**options)(function)


# The kernels. Arrays are rows of 2N: the real parts, then the imaginary parts. A unit is a sequence and a block of
# channels. `resets` is empty where there are none. The link between a step and the one walked before it is cut where
# the later of the two starts a new sequence.


@_jit
def _scan(u, lam, carry, resets, reverse, states, stream, width, first, last):  # type: ignore[no-untyped-def]
    length, N = u.shape[1], lam.shape[0] // 2
    lanes = 64 // u.itemsize
    ahead = 1 + 4096 // (u.itemsize * 2 * N)
    blocks = -(-N // width)
    for unit in range(first, last):
        b, start = unit // blocks, unit % blocks * width
        stop = min(N, start + width)
        vectors_stop = start + (stop - start) // lanes * lanes
        x = carry[b]
        for t in range(length):
            k = length - 1 - t if reverse else t
            later = k + 1 if reverse else k
            if resets.size and later < length and resets[b, later]:
                x[start:stop] = 0
                x[N + start : N + stop] = 0
            v, out = u[b, k], states[b, k]
            coming = u[b, max(k - ahead, 0) if reverse else min(k + ahead, length - 1)]
            for n in range(start, vectors_stop, lanes):
                m = N + n
                _prefetch(coming, n)
                _prefetch(coming, m)
                re, im = _step(_load(lam, n), _load(lam, m), _load(x, n), _load(x, m), _load(v, n), _load(v, m))
                _store(x, n, re)
                _store(x, m, im)
                if stream:
                    _store_past_cache(out, n, re)
                    _store_past_cache(out, m, im)
                else:
                    _store(out, n, re)
                    _store(out, m, im)
            for n in range(vectors_stop, stop):
                m = N + n
                x[n], x[m] = _step(lam[n], lam[m], x[n], x[m], v[n], v[m])
                out[n], out[m] = x[n], x[m]
        if resets.size and reverse and length and resets[b, 0]:
            x[start:stop] = 0
            x[N + start : N + stop] = 0
    _fence()


@_jit
def _step(lr, li, xr, xi, ur, ui):  # type: ignore[no-untyped-def]
    """λ·x + u."""
    return lr * xr - li * xi + ur, lr * xi + li * xr + ui


@_jit
def _scan_backward(  # type: ignore[no-untyped-def]
    grad_states, states, lam, initial, carry, resets, reverse, grad_u, partial, grad_lam, stream, width, first, last
):
    length, N = states.shape[1], lam.shape[0] // 2
    lanes = 64 // states.itemsize
    ahead = 1 + 4096 // (states.itemsize * 2 * N)
    blocks = -(-N // width)
    for unit in range(first, last):
        b, start = unit // blocks, unit % blocks * width
        stop = min(N, start + width)
        vectors_stop = start + (stop - start) // lanes * lanes
        c, d = carry[b], partial[b]
        if resets.size and reverse and length and resets[b, 0]:
            c[start:stop] = 0
            c[N + start : N + stop] = 0
        for t in range(length):
            k = t if reverse else length - 1 - t
            later = k + 1 if reverse else k
            cut = resets.size and later < length and resets[b, later]
            v, out = grad_states[b, k], grad_u[b, k]
            p = initial[b] if t == length - 1 else states[b, k + 1 if reverse else k - 1]
            coming_k = min(k + ahead, length - 1) if reverse else max(k - ahead, 0)
            coming_v, coming_p = grad_states[b, coming_k], states[b, coming_k]
            for n in range(start, vectors_stop, lanes):
                m = N + n
                _prefetch(coming_v, n)
                _prefetch(coming_v, m)
                _prefetch(coming_p, n)
                _prefetch(coming_p, m)
                gr, gi = _load(v, n) + _load(c, n), _load(v, m) + _load(c, m)
                cr, ci = _conj_times(_load(lam, n), _load(lam, m), gr, gi)
                dr, di = _conj_times(_load(p, n), _load(p, m), gr, gi)
                _store(c, n, cr)
                _store(c, m, ci)
                if not cut:
                    _store(d, n, _load(d, n) + dr)
                    _store(d, m, _load(d, m) + di)
                if stream:
                    _store_past_cache(out, n, gr)
                    _store_past_cache(out, m, gi)
                else:
                    _store(out, n, gr)
                    _store(out, m, gi)
            for n in range(vectors_stop, stop):
                m = N + n
                out[n], out[m] = v[n] + c[n], v[m] + c[m]
                c[n], c[m] = _conj_times(lam[n], lam[m], out[n], out[m])
                if not cut:
                    dr, di = _conj_times(p[n], p[m], out[n], out[m])
                    d[n] += dr
                    d[m] += di
            if cut:
                c[start:stop] = 0
                c[N + start : N + stop] = 0
            if t % FLUSH == FLUSH - 1 or t == length - 1:
                for half in (0, N):
                    for n in range(half + start, half + stop):
                        grad_lam[b, n] += d[n]
                        d[n] = 0
    _fence()


@_jit
def _conj_times(ar, ai, br, bi):  # type: ignore[no-untyped-def]
    """conj(a)·b."""
    return ar * br + ai * bi, ar * bi - ai * br


# Vectors of 64 bytes for Numba: a type, +, - and *, and the ways to and from memory.


class _Vector(types.Type):  # type: ignore[misc]
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"vector({dtype})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: _Vector) -> None:
        lane = ir.DoubleType() if vector.dtype.bitwidth == 64 else ir.FloatType()
        super().__init__(manager, vector, ir.VectorType(lane, 512 // vector.dtype.bitwidth))


def _arithmetic(operation: Callable[..., Any], instruction: str) -> None:
    @intrinsic  # type: ignore[untyped-decorator]
    def compute(_, a, b):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments, flags=["contract"])  # may become a fused multiply-add

        return a(a, b), build

    @overload(operation)  # type: ignore[untyped-decorator]
    def vectors(a, b):  # type: ignore[no-untyped-def]
        if isinstance(a, _Vector) and isinstance(b, _Vector):
            return lambda a, b: compute(a, b)
        return None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, target: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), target.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _load(_, array, i):  # type: ignore[no-untyped-def]
    vector = _Vector(array.dtype)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments, context.get_value_type(vector))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return vector(array, i), build


def _storing(past_cache: bool) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(_, array, i, vector):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature, arguments, context.get_value_type(vector))
            instruction = builder.store(arguments[2], pointer, align=64 if past_cache else array.dtype.bitwidth // 8)
            if past_cache:
                one = ir.Constant(ir.IntType(32), 1)
                instruction.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(array, i, vector), build

    return store


_store = _storing(past_cache=False)
_store_past_cache = _storing(past_cache=True)


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_, array, i):  # type: ignore[no-untyped-def]
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = _pointer(context, builder, signature, arguments, byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, i), build


@intrinsic  # type: ignore[untyped-decorator]
def _fence(_):  # type: ignore[no-untyped-def]
    """What was written past the cache is seen by whoever waits for this thread."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build
