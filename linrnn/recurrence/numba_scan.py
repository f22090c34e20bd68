"""The scan on the CPU: Numba kernels.

The recurrence does little arithmetic, so its speed is that of memory. Each row (a step) is walked in vectors of 64
bytes along N, with the rows ahead prefetched, and large results are written past the cache, as a good `memcpy` does.
Sequences, and where those are few blocks of channels, are shared among PyTorch's own OpenMP threads, or where it has
none among threads of ours; not Numba's, which must not be entered from two threads at once.
"""

import ctypes
import functools
import mmap
import operator
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model
from torch import Tensor

from linrnn.recurrence import plain
from linrnn.recurrence.plain import adds_bias, exclusive_scan, exclusive_scan_backward
from linrnn.util.jit import jit

__all__ = ["adds_bias", "exclusive_scan", "exclusive_scan_backward", "scan", "scan_backward"]

PROCESS = os.getpid()  # a fork leaves PyTorch's threads behind
SHARE = 1 << 14  # elements of u below which a second thread costs more than it brings
STREAM = 1 << 22  # bytes from which results are written past the cache
FRESH = 1 << 25  # bytes from which Linux gives new memory for every result, which it does page by page
HUGE_PAGES = 14  # MADV_HUGEPAGE
BLOCK = 64  # channels in the narrowest block: a multiple of every vector's width
TILE = 8  # steps that a vector of channels walks at a time
FLUSH = 256  # steps after which dλ moves from single to double precision: a multiple of TILE


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, resets: Tensor | None, reverse: bool, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if offsets is not None:  # here sequences end to end come with resets
        return plain.scan(u, lam, initial, resets, reverse, offsets)
    states = _empty(u.shape, lam.dtype)
    carry = initial.clone(memory_format=torch.contiguous_format)
    arrays = [_flat(t, lam.dtype) for t in (u, lam, carry)]
    _share(_scan, u, [*arrays, _flags(resets), reverse, _flat(states, lam.dtype), _stream(states)])
    return states.to(u.dtype), carry


def scan_backward(
    grad_states: Tensor,
    grad_final: Tensor,
    states: Tensor,
    lam: Tensor,
    initial: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None = None,
    sum_u: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    if offsets is not None:
        return plain.scan_backward(grad_states, grad_final, states, lam, initial, resets, reverse, offsets, sum_u)
    grad_u = _empty(states.shape, lam.dtype)
    carry = grad_final.clone(memory_format=torch.contiguous_format)
    partial = torch.zeros_like(carry)
    grad_lam = torch.zeros_like(carry, dtype=torch.float64)  # for each sequence; summed in a fixed order below
    arrays = [_flat(t, lam.dtype) for t in (grad_states, states, lam, initial, carry)]
    outputs = [_flat(grad_u, lam.dtype), _flat(partial, lam.dtype), _flat(grad_lam, torch.float64)]
    _share(_scan_backward, states, [*arrays, _flags(resets), reverse, *outputs, _stream(grad_u)])
    sums = grad_lam.sum(dim=0).to(lam.dtype)
    return grad_u.to(states.dtype), plain.with_sum(sums, grad_u) if sum_u else sums, carry


def _empty(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A new tensor; a large one in pages of 2 MB where Linux has them, as to get it in small ones takes longer than to
    fill it."""
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes >= FRESH and (advise := _madvise()) is not None:
        page = mmap.PAGESIZE
        start = -(-tensor.data_ptr() // page) * page
        advise(ctypes.c_void_p(start), ctypes.c_size_t(tensor.data_ptr() + tensor.nbytes - start), HUGE_PAGES)
    return tensor


@functools.cache
def _madvise() -> Any:
    return getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None


def _share(kernel: Callable[..., None], u: Tensor, arguments: list[Any]) -> None:
    """Run the kernel over all (sequence, block of channels) pairs, in as many threads as PyTorch would use.

    A thread takes the next few pairs whenever it is free, so that one which gets no core does not hold up the others.
    """
    batch, length, _, n = u.shape
    threads = torch.get_num_threads() if u.numel() >= SHARE else 1
    blocks = max(1, min(-(-4 * threads // max(batch, 1)), n // BLOCK)) if threads > 1 else 1
    width = -(-n // blocks // BLOCK) * BLOCK if blocks > 1 else n
    units = batch * -(-n // width)
    few = max(1, units // (8 * threads)) if threads > 1 else max(1, units)
    starts = iter(range(0, units, few))  # one step of it holds the interpreter lock: no two threads get the same

    def work() -> None:
        for start in starts:
            kernel(*arguments, length, width, start, min(start + few, units))

    _together(work, min(threads, -(-units // few)))


def _together(work: Callable[[], None], threads: int) -> None:
    """Do the work in this thread and in others beside it, for as long as it lasts."""
    if threads > 1 and (team := _torch_team()) is not None and os.getpid() == PROCESS:
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
def _torch_team() -> Any:
    """The start of a parallel region in the OpenMP that PyTorch has loaded; None where that is another one.

    Its threads are the ones that just worked for PyTorch and still spin on their cores: others would have to wait.
    """
    package = Path(torch.__file__).parent
    for path in (*package.glob("lib/libgomp*.so*"), *package.with_name("torch.libs").glob("libgomp*.so*")):
        try:
            return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        except (OSError, AttributeError):
            continue
    return None


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="linrnn")


def _flat(t: Tensor, dtype: torch.dtype) -> Any:
    return t.detach().to(dtype).contiguous().view(-1).numpy()


def _flags(resets: Tensor | None) -> Any:
    return np.empty(0, dtype=np.bool_) if resets is None else resets.contiguous().view(-1).numpy()


def _stream(out: Tensor) -> bool:
    lanes = 64 // out.itemsize
    return out.shape[-1] % lanes == 0 and out.nbytes >= STREAM and out.data_ptr() % 64 == 0


def _jit(function: Callable[..., None]) -> Any:
    return jit(function, error_model="numpy", fastmath={"contract"})


# The kernels. Arrays are flat: for each sequence and step the real parts, then the imaginary parts. A unit is a
# sequence and a block of channels, walked in tiles of a few steps; inside a tile each vector of channels walks the
# steps with its state in registers. `resets` is empty where there are none. The link between a step and the one walked
# before it is cut where the later of the two starts a new sequence.


@_jit
def _scan(u, lam, carry, resets, reverse, states, stream, length, width, first, last):
    N = lam.size // 2
    lanes = 64 // u.itemsize
    row = -2 * N if reverse else 2 * N  # from a step to the one walked after it
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * 2 * N, b * length
        for t in range(0, length, TILE):
            steps = min(TILE, length - t)
            k = length - 1 - t if reverse else t
            i = (begin + k) * 2 * N
            coming = TILE * row if t + 2 * TILE <= length else 0
            for n in range(start, stop_vectors, lanes):
                m = N + n
                lr, li, xr, xi = _load(lam, n), _load(lam, m), _load(carry, c + n), _load(carry, c + m)
                for s in range(steps):
                    j = i + s * row
                    _prefetch(u, j + coming + n)
                    _prefetch(u, j + coming + m)
                    if resets.size and _cut(resets, begin, length, k - s if reverse else k + s, reverse):
                        xr, xi = _zero(xr), _zero(xi)
                    xr, xi = _step(lr, li, xr, xi, _load(u, j + n), _load(u, j + m))
                    if stream:
                        _store_past_cache(states, j + n, xr)
                        _store_past_cache(states, j + m, xi)
                    else:
                        _store(states, j + n, xr)
                        _store(states, j + m, xi)
                _store(carry, c + n, xr)
                _store(carry, c + m, xi)
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
    _fence()


@_jit
def _step(lr, li, xr, xi, ur, ui):
    """λ·x + u."""
    return lr * xr - li * xi + ur, lr * xi + li * xr + ui


@_jit
def _scan_backward(
    grad, states, lam, initial, carry, resets, reverse, grad_u, d, grad_lam, stream, length, width, first, last
):
    N = lam.size // 2
    lanes = 64 // states.itemsize
    row = 2 * N if reverse else -2 * N  # against the scan: from a step to the one that came before it
    for unit in range(first, last):
        b, start, stop, stop_vectors = _unit(unit, width, N, lanes)
        c, begin = b * 2 * N, b * length
        if resets.size and reverse and length and resets[begin]:
            _clear(carry, c, N, start, stop)
        for t in range(0, length, TILE):
            steps = min(TILE, length - t)
            k = t if reverse else length - 1 - t
            i = (begin + k) * 2 * N
            coming = TILE * row if t + 2 * TILE <= length else 0
            for n in range(start, stop_vectors, lanes):
                m = N + n
                lr, li, cr, ci = _load(lam, n), _load(lam, m), _load(carry, c + n), _load(carry, c + m)
                dr, di = _load(d, c + n), _load(d, c + m)
                for s in range(steps):
                    j = i + s * row
                    _prefetch(grad, j + coming + n)
                    _prefetch(grad, j + coming + m)
                    _prefetch(states, j + coming + n)
                    _prefetch(states, j + coming + m)
                    gr, gi = _load(grad, j + n) + cr, _load(grad, j + m) + ci
                    cr, ci = _conj_times(lr, li, gr, gi)
                    if stream:
                        _store_past_cache(grad_u, j + n, gr)
                        _store_past_cache(grad_u, j + m, gi)
                    else:
                        _store(grad_u, j + n, gr)
                        _store(grad_u, j + m, gi)
                    if resets.size and _cut(resets, begin, length, k + s if reverse else k - s, reverse):
                        cr, ci = _zero(cr), _zero(ci)
                    elif t + s < length - 1:
                        er, ei = _conj_times(_load(states, j + row + n), _load(states, j + row + m), gr, gi)
                        dr, di = dr + er, di + ei
                _store(carry, c + n, cr)
                _store(carry, c + m, ci)
                _store(d, c + n, dr)
                _store(d, c + m, di)
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
            if (t + steps) % FLUSH == 0 or t + steps == length:
                for n in range(start, stop):
                    grad_lam[c + n] += d[c + n]
                    grad_lam[c + N + n] += d[c + N + n]
                _clear(d, c, N, start, stop)
        k = length - 1 if reverse else 0  # the first step of the scan, whose state before was the initial one
        if length and not (resets.size and _cut(resets, begin, length, k, reverse)):
            i = (begin + k) * 2 * N
            for n in range(start, stop):
                m = N + n
                er, ei = _conj_times(initial[c + n], initial[c + m], grad_u[i + n], grad_u[i + m])
                grad_lam[c + n] += er
                grad_lam[c + m] += ei
    _fence()


@_jit
def _conj_times(ar, ai, br, bi):
    """conj(a)·b."""
    return ar * br + ai * bi, ar * bi - ai * br


@_jit
def _unit(unit, width, N, lanes):
    """The sequence and the channels of a unit, and where its whole vectors end."""
    blocks = -(-N // width)
    start = unit % blocks * width
    stop = min(N, start + width)
    return unit // blocks, start, stop, start + (stop - start) // lanes * lanes


@_jit
def _cut(resets, begin, length, k, reverse):
    """Whether no state comes to step k from the step that the scan walks before it."""
    later = k + 1 if reverse else k
    return later < length and resets[begin + later]


@_jit
def _clear(x, row, N, start, stop):
    x[row + start : row + stop] = 0
    x[row + N + start : row + N + stop] = 0


# Vectors of 64 bytes for Numba: a type, +, - and *, and the ways to and from memory.


class _Vector(types.Type):
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"vector({dtype})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: _Vector) -> None:
        lane = ir.DoubleType() if vector.dtype.bitwidth == 64 else ir.FloatType()
        super().__init__(manager, vector, ir.VectorType(lane, 512 // vector.dtype.bitwidth))


def _arithmetic(operation: Callable[..., Any], instruction: str) -> None:
    @intrinsic
    def compute(_, a, b):
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments, flags=["contract"])  # may become a fused multiply-add

        return a(a, b), build

    @overload(operation)
    def vectors(a, b):
        if isinstance(a, _Vector) and isinstance(b, _Vector):
            return lambda a, b: compute(a, b)
        return None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, target: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), target.as_pointer())


@intrinsic
def _load(_, array, i):
    vector = _Vector(array.dtype)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments, context.get_value_type(vector))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return vector(array, i), build


def _storing(past_cache: bool) -> Any:
    @intrinsic
    def store(_, array, i, vector):
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


@intrinsic
def _zero(_, vector):
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(vector), build


@intrinsic
def _prefetch(_, array, i):
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = _pointer(context, builder, signature, arguments, byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, i), build


@intrinsic
def _fence(_):
    """What was written past the cache is seen by whoever waits for this thread."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build
