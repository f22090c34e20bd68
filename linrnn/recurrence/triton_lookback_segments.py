"""The segments of a look-back's tile: a program scans all segments at once, one row of steps after another.

A row holds one step of every segment, (segments, channels). Between the two scans of a tile its rows stay in registers.
"""

import triton
import triton.language as tl

from linrnn.recurrence.triton_common import (
    add_conj_product_at_once,
    multiply_add,
    multiply_add_at_once,
    store_planes,
    widen,
)
from linrnn.recurrence.triton_lookback_slots import sum_segments


@triton.jit
def load_rows(pointer, limit, N: tl.constexpr, row, STEPS: tl.constexpr, CERTAIN: tl.constexpr):
    """The rows of all segments, real and imaginary parts; zero for missing steps, none of the first CERTAIN."""
    re = ()
    im = ()
    for r in tl.static_range(STEPS):
        if r < CERTAIN:
            re = re + (tl.load(pointer + r * row),)
            im = im + (tl.load(pointer + r * row + N),)
        else:
            re = re + (tl.load(pointer + r * row, mask=r < limit, other=0.0),)
            im = im + (tl.load(pointer + r * row + N, mask=r < limit, other=0.0),)
    return re, im


@triton.jit
def segment_cuts(resets, k, length, sign, reverse, RESETS: tl.constexpr, SEGMENTS: tl.constexpr, STEPS: tl.constexpr):
    """For each row, whether the link to the step before it is cut; k is the first step of the tile."""
    cut = ()
    if RESETS:
        later = k + (tl.arange(0, SEGMENTS)[:, None] * STEPS + tl.arange(0, STEPS)[None, :]) * sign
        if reverse:
            later += 1
        cut = _columns(tl.load(resets + later, mask=(later >= 0) & (later < length), other=0))
    return cut


@triton.jit
def count_cuts(cut, SEGMENTS: tl.constexpr, STEPS: tl.constexpr):
    """The number of cuts in each segment."""
    cuts = tl.zeros((SEGMENTS, 1), tl.int32)
    for r in tl.static_range(STEPS):
        cuts += cut[r].to(tl.int32)
    return cuts


@triton.jit
def _columns(tile):
    """The columns of a tile, as conditions."""
    if tile.shape[1] == 1:
        columns = (tile != 0,)
    else:
        even, odd = tl.split(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 2, 2)))
        even, odd = _columns(even), _columns(odd)
        columns = ()
        for r in tl.static_range(len(even)):
            columns = columns + (even[r], odd[r])
    return columns


@triton.jit
def scan_from_zero(ur, ui, lr, li, cut, RESETS: tl.constexpr, BACKWARD: tl.constexpr, STEPS: tl.constexpr):
    """Each segment scanned from zero: e of x ↦ a·x + e."""
    xr, xi = tl.zeros_like(lr), tl.zeros_like(li)
    for r in tl.static_range(STEPS):
        vr, vi = _widen_again(ur[r], ui[r], lr.dtype)
        xr, xi = _advance(lr, li, xr, xi, vr, vi, cut, r, RESETS, BACKWARD)
    if BACKWARD:  # the next segment receives conj(λ)·g
        xr, xi = lr * xr - li * xi, lr * xi + li * xr
    return xr, xi


@triton.jit
def compose(
    ar, ai, er, ei, pr, pi, fr, fi,
    next_ar, next_ai, next_er, next_ei, next_pr, next_pi, next_fr, next_fi,
):  # fmt: skip
    """The composition of the maps of neighbouring segments, x ↦ a·x + e, and without the last segment, x ↦ p·x + f."""
    fr, fi = multiply_add(next_pr, next_pi, er, ei, next_fr, next_fi)
    er, ei = multiply_add(next_ar, next_ai, er, ei, next_er, next_ei)
    pr, pi = next_pr * ar - next_pi * ai, next_pr * ai + next_pi * ar
    return next_ar * ar - next_ai * ai, next_ar * ai + next_ai * ar, er, ei, pr, pi, fr, fi


@triton.jit
def write_results(
    states, lr, li, xr, xi, ur, ui, qr, qi, cut, limit, row,
    RESETS: tl.constexpr, BACKWARD: tl.constexpr, EXCLUSIVE: tl.constexpr, CONJUGATE: tl.constexpr, SUM_U: tl.constexpr,
    FULL: tl.constexpr, N: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """The second scan, from the states that enter the segments: the last states, Σ conj(forward)·result, Σ result."""
    er, ei, tr, ti = tl.zeros_like(lr), tl.zeros_like(li), tl.zeros_like(lr), tl.zeros_like(li)
    for r in tl.static_range(STEPS):
        there = r < limit
        vr, vi = _widen_again(ur[r], ui[r], lr.dtype)
        if RESETS and not BACKWARD:
            xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
        yr, yi = xr, xi
        nr, ni = (
            _advance_gradient(lr, li, xr, xi, vr, vi, r) if BACKWARD else multiply_add_at_once(lr, li, xr, xi, vr, vi)
        )
        if not EXCLUSIVE:
            yr, yi = nr, ni
        if CONJUGATE:
            wr, wi = _widen_again(qr[r], qi[r], lr.dtype)
            if RESETS and BACKWARD:
                wr, wi = tl.where(cut[r], 0.0, wr), tl.where(cut[r], 0.0, wi)
            er, ei = add_conj_product_at_once(er, ei, wr, wi, yr, yi)
        if SUM_U:
            tr, ti = (tr + yr, ti + yi) if FULL else (tl.where(there, tr + yr, tr), tl.where(there, ti + yi, ti))
        if RESETS and BACKWARD:
            nr, ni = tl.where(cut[r], 0.0, nr), tl.where(cut[r], 0.0, ni)
        xr, xi = nr, ni
        if FULL:
            store_planes(states + r * row, N, yr, yi)
        else:
            tl.store(states + r * row, yr.to(states.dtype.element_ty), mask=there)
            tl.store(states + r * row + N, yi.to(states.dtype.element_ty), mask=there)
    return xr, xi, er, ei, tr, ti


@triton.jit
def final_state(
    lr, li, xr, xi, ur, ui, cut, first, steps, RESETS: tl.constexpr, BACKWARD: tl.constexpr, STEPS: tl.constexpr
):  # fmt: skip
    """The state after the last step of the sequence, which is in this tile."""
    for r in tl.static_range(STEPS):
        vr, vi = _widen_again(ur[r], ui[r], lr.dtype)
        nr, ni = _advance(lr, li, xr, xi, vr, vi, cut, r, RESETS, BACKWARD)
        there = first + r < steps
        xr, xi = tl.where(there, nr, xr), tl.where(there, ni, xi)
    ends_here = (first < steps) & (first + STEPS >= steps)
    return sum_segments(tl.where(ends_here, xr, 0.0), tl.where(ends_here, xi, 0.0))


@triton.jit
def _advance(lr, li, xr, xi, vr, vi, cut, r: tl.constexpr, RESETS: tl.constexpr, BACKWARD: tl.constexpr):
    """One step; from zero if a reset cuts the link to the previous step."""
    if RESETS and not BACKWARD:
        xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
    xr, xi = _advance_gradient(lr, li, xr, xi, vr, vi, r) if BACKWARD else multiply_add_at_once(lr, li, xr, xi, vr, vi)
    if RESETS and BACKWARD:
        xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
    return xr, xi


@triton.jit
def _advance_gradient(lr, li, gr, gi, vr, vi, r: tl.constexpr):
    """The next g: v + conj(λ)·g; for the first row of a segment v + g, where conj(λ) is already in g."""
    if r == 0:
        return vr + gr, vi + gi
    return multiply_add_at_once(lr, li, gr, gi, vr, vi)


@triton.jit
def _widen_again(re, im, DTYPE: tl.constexpr):
    """In the type of the state, converted again by each scan: between the scans the rows keep the storage type."""
    return widen(re, DTYPE, True, False), widen(im, DTYPE, True, False)
