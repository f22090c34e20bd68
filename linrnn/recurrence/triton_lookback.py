"""The scan of few, long sequences on NVIDIA GPUs: a look-back with one program for each tile of steps.

A program loads its tile, divides it into segments of consecutive steps and scans all segments from zero at once.
Composed, the segments give the state e at the end of the tile if the tile starts from zero. The program publishes e,
finds the state that enters its tile from what earlier tiles published, and scans again to write the results. So u is
read once. `triton_lookback_slots` holds the protocol between programs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.triton_common import (
    Result,
    Task,
    add_conj_product,
    block_channels,
    channels_per_program,
    load_planes,
    multiply_add,
    sequence_bounds,
    store_planes,
    store_sums,
)
from linrnn.recurrence.triton_lookback_segments import (
    compose,
    count_cuts,
    final_state,
    load_rows,
    scan_from_zero,
    segment_cuts,
    write_results,
)
from linrnn.recurrence.triton_lookback_slots import EMPTY, look_back, publish, sum_segments, sum_two
from linrnn.util.launch import FUSED, on, settle


class LookbackTile(NamedTuple):
    steps: int  # of a segment
    segments: int
    channels: int  # of a program
    warps: int
    registers: int | None  # of a thread; few, since a tile stays in registers until its results are written


# By the bytes of a number: pairs of a size of u, in numbers, and the tile from this size on.
LookbackTiles = Mapping[int, tuple[tuple[int, LookbackTile], ...]]
LOOKBACK_TILES: LookbackTiles = {
    2: ((0, LookbackTile(32, 8, 32, 4, 128)),),
    4: ((0, LookbackTile(16, 8, 32, 4, 128)),),
}
LOOKBACK_BACKWARD_TILES: LookbackTiles = {
    2: ((24_000_000, LookbackTile(24, 8, 32, 4, 168)), (0, LookbackTile(16, 8, 32, 4, 128))),
    4: ((0, LookbackTile(12, 8, 32, 4, 168)),),
}
PREFETCH_DISTANCE = 132  # programs between a prefetch into L2 and the load; 0: no prefetch
CLEAR_WORDS = 1024  # the number of words that a program of `prepare_lookback_kernel` fills
PREFETCH_ASSEMBLY = tl.constexpr(  # $2 bytes from $1 on, if $3 is not 0
    "{.reg .pred p; setp.ne.s32 p, $3, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;}"
)


def run(task: Task) -> Result:
    """The states, and for a gradient the sums over the steps of each tile."""
    u, lam, offsets = task.u, task.lam, task.options.offsets
    plan = _plan(task)
    tile, n = plan.tile, u.shape[-1]
    states, final = torch.empty_like(u), torch.empty_like(task.start)
    powers = lam.new_empty(2 * tile.segments + 1, 2, n)
    words = plan.chains * plan.slots * (2 if task.options.resets is None else 3) * tile.channels
    slots = torch.empty(words, dtype=torch.int32, device=u.device)
    partials = None
    if task.states is not None:  # not every tile of a packed batch exists
        new = lam.new_empty if offsets is None else lam.new_zeros
        partials = new(plan.chains // plan.blocks * plan.tiles, task.sums, 2, n)
    switches = task.switches()
    shape = {"N": n, "STEPS": tile.steps, "SEGMENTS": tile.segments, "BLOCK": tile.channels}
    shape |= {"DEPENDENT": switches.pop("DEPENDENT"), "CONJUGATE": task.states is not None, **FUSED}
    options = switches | {
        "BACKWARD": task.initial is not None,
        "EXCLUSIVE": task.options.exclusive,
        "DIRECTIONS": task.directions,
        "SEQUENCES": 1 if offsets is None else triton.next_power_of_2(task.sequences),
        "FULL": offsets is None and u.shape[1] % (tile.steps * tile.segments) == 0,  # all tiles are whole
        "PREFETCH": shape["DEPENDENT"] and _prefetches(task, plan),
        "THREADS": 32 * tile.warps,
        "num_warps": tile.warps,
        "maxnreg": tile.registers,
        "launch_pdl": shape["DEPENDENT"],
    }
    given = (u, lam, task.start, task.flags(), offsets, task.states, task.initial)
    distance = max(1, PREFETCH_DISTANCE // plan.chains)
    sizes = (task.sequences, u.shape[1], plan.tiles, plan.chains, plan.slots, distance)
    with on(u.device):
        grid = (max(triton.cdiv(words, CLEAR_WORDS), len(powers) * plan.blocks),)
        prepare_lookback_kernel[grid](lam, powers, slots, words, WORDS=CLEAR_WORDS, **shape)
        grid = (plan.tiles * plan.chains,)
        lookback_kernel[grid](*given, states, final, partials, powers, slots, *sizes, **options, **shape)
    return Result(states, final, partials)


class _Plan(NamedTuple):
    """How the work is divided among programs."""

    tile: LookbackTile
    blocks: int  # of channels
    chains: int  # blocks of channels of all sequences and directions; of a packed batch, of all directions
    tiles: int  # of a chain, at most
    slots: int  # of a chain


def _plan(task: Task) -> _Plan:
    length, n, directions = task.u.shape[1], task.u.shape[-1], task.directions
    tiles_by_size = (LOOKBACK_TILES if task.states is None else LOOKBACK_BACKWARD_TILES)[task.u.itemsize]
    tile = next(tile for numbers, tile in tiles_by_size if task.u.numel() >= numbers)
    steps, segments, channels, warps, registers = tile
    if task.options.resets is not None:  # a power of two; the time to compile grows with its cube
        steps = 1 << (min(steps, 16).bit_length() - 1)
    block = channels_per_program(channels, n)
    segments = min(segments * channels // block, 64)  # more steps for fewer channels
    warps = max(1, min(warps, segments * block // 64))  # a group's slots have at least two numbers for each thread
    tile = LookbackTile(steps, segments, block, warps, registers)
    blocks, tiles = triton.cdiv(n, block), triton.cdiv(length, steps * segments)
    if task.options.offsets is not None:  # t tiles of a sequence and their groups take at most 2·(t + segments) slots
        tiles += task.sequences
        return _Plan(tile, blocks, directions * blocks, tiles, 2 * (tiles + segments * task.sequences))
    groups = triton.cdiv(tiles, segments)
    slots = (groups + triton.cdiv(groups, segments)) * segments
    return _Plan(tile, blocks, task.sequences * directions * blocks, tiles, slots)


def _prefetches(task: Task, plan: _Plan) -> bool:
    """Whether a tile of all channels is contiguous, and every warp's share is a multiple of 16 bytes."""
    tile = plan.tile
    size = tile.steps * tile.segments * 2 * task.u.shape[-1] * task.u.itemsize
    tensors = (x for x in (task.u, task.states) if x is not None)
    even = size % (16 * plan.blocks * tile.warps) == 0
    return PREFETCH_DISTANCE > 0 and task.directions == 1 and even and all(map(_aligned, tensors))


def _aligned(x: Tensor) -> bool:
    """Whether every step of x (..., 2, N) begins at a multiple of 16 bytes, as a prefetch must."""
    return x.data_ptr() % 16 == 0 and 2 * x.shape[-1] * x.itemsize % 16 == 0


@triton.jit(do_not_specialize=["words"])
def prepare_lookback_kernel(
    lam, powers, slots, words,
    CONJUGATE: tl.constexpr, WORDS: tl.constexpr, N: tl.constexpr, STEPS: tl.constexpr, SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Fill the slots with EMPTY; compute λ^(k tiles), λ^(k groups) and λ^(steps of a segment) in double precision."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    program = tl.program_id(0)
    at = program.to(tl.int64) * WORDS + tl.arange(0, WORDS)
    tl.store(slots + at, EMPTY, mask=at < words)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    GROUP: tl.constexpr = SEGMENTS
    k, n = program // BLOCKS, block_channels(program % BLOCKS, N, BLOCK)
    if k <= 2 * GROUP:
        power = tl.where(k < GROUP, k, (k - GROUP) * GROUP) * (STEPS * SEGMENTS)
        power = tl.where(k == 2 * GROUP, STEPS, power)
        wr, wi = load_planes(lam + n, N, tl.float64)
        if CONJUGATE:
            wi = -wi
        pr, pi = tl.full((1, BLOCK), 1.0, tl.float64), tl.zeros((1, BLOCK), tl.float64)
        while power > 0:
            if power % 2 == 1:
                pr, pi = pr * wr - pi * wi, pr * wi + pi * wr
            wr, wi = wr * wr - wi * wi, 2 * wr * wi
            power = power // 2
        store_planes(powers + k * 2 * N + n, N, pr, pi)


@triton.jit(
    do_not_specialize=["batch", "length", "tiles", "chains", "chain_slots", "distance"],
    do_not_specialize_on_alignment=["resets"],
)
def lookback_kernel(
    u, lam, starts, resets, offsets, forward, initial, states, final, partials, powers, slots,
    batch, length, tiles, chains, chain_slots, distance,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr, BACKWARD: tl.constexpr, EXCLUSIVE: tl.constexpr,
    CONJUGATE: tl.constexpr, DIRECTIONS: tl.constexpr, SEQUENCES: tl.constexpr, FULL: tl.constexpr,
    PREFETCH: tl.constexpr, THREADS: tl.constexpr, SUM_U: tl.constexpr,
    N: tl.constexpr, STEPS: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One tile. A chain is a block of channels of a sequence, or of a packed batch, whose tiles follow each other."""
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    TILE: tl.constexpr = SEGMENTS * STEPS
    GROUP: tl.constexpr = SEGMENTS  # tiles; then the tensors of both have the same shape, and the same layout
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    program = tl.program_id(0)
    chain, s = (program % chains).to(tl.int64), (program // chains).to(tl.int64)
    n = block_channels(chain % BLOCKS, N, BLOCK)
    b, direction = chain // BLOCKS // DIRECTIONS, chain // BLOCKS % DIRECTIONS
    part, base = chain // BLOCKS * tiles + s, chain * chain_slots
    if OFFSETS:
        b, earlier = _find_sequence(offsets, s, batch, TILE, SEQUENCES)
        if b == batch:  # there are fewer tiles
            return
        s -= earlier
        base += 2 * (earlier + GROUP * b)
    sequence = b * DIRECTIONS + direction
    reverse = REVERSE if DIRECTIONS == 1 else (direction == 1) != REVERSE
    begin, length = sequence_bounds(offsets, b, length, OFFSETS)
    if OFFSETS:
        tiles = (length + TILE - 1) // TILE
    steps = tl.minimum(TILE, length - s * TILE).to(tl.int32)
    groups = (tiles + GROUP - 1) // GROUP
    first = tl.arange(0, SEGMENTS)[:, None] * STEPS
    limit = steps - first  # rows of each segment
    k = length - 1 - s * TILE if reverse else s * TILE
    sign = -1 if reverse else 1
    row = DIRECTIONS * 2 * N * sign
    at = ((begin + k) * DIRECTIONS + direction) * 2 * N + n + first * row
    ur, ui = load_rows(u + at, limit, N, row, STEPS, STEPS if FULL else 0)
    if PREFETCH:  # each block of channels takes its share of the tile `distance` tiles ahead
        SHARE: tl.constexpr = TILE * 2 * N // BLOCKS
        share = (begin + k + (1 - TILE if reverse else 0)) * 2 * N + chain % BLOCKS * SHARE
        _prefetch(u + (share + distance * TILE * row), (s + distance + 1) * TILE <= length, SHARE, THREADS)
        if CONJUGATE:  # of this tile; the forward states are read later than u
            _prefetch(forward + share, (s + 1) * TILE <= length, SHARE, THREADS)
    resets_of_b = resets + begin if RESETS else resets
    # for the gradient, the cut between a step and the step after it in the direction of the scan
    cut = segment_cuts(resets_of_b, k, length, sign, (not reverse) if BACKWARD else reverse, RESETS, SEGMENTS, STEPS)
    zero = tl.zeros((SEGMENTS, BLOCK), lam.dtype.element_ty)
    lr, li = load_planes(lam + n, N, lam.dtype.element_ty)
    lr, li = lr + zero, zero - li if CONJUGATE else li + zero
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()  # for `prepare_lookback_kernel`, while u is loading
    ar, ai = load_planes(powers + 2 * GROUP * 2 * N + n, N, lam.dtype.element_ty)
    ar, ai = ar + zero, ai + zero
    er, ei = scan_from_zero(ur, ui, lr, li, cut, RESETS, BACKWARD, STEPS)
    passes = True  # whether a state that enters the tile reaches its end
    if RESETS:
        cuts = count_cuts(cut, SEGMENTS, STEPS)
        passes = tl.sum(cuts) == 0
        ar, ai = tl.where(cuts > 0, 0.0, ar), tl.where(cuts > 0, 0.0, ai)
    maps = tl.associative_scan((ar, ai, er, ei, zero + 1, zero, zero, zero), 0, compose)
    ar, ai, er, ei, pr, pi, fr, fi = maps
    last = first == TILE - STEPS  # the segment that ends the tile

    if s == 0:
        sr, si = load_planes(starts + sequence * 2 * N + n, N, lam.dtype.element_ty)
        if RESETS and BACKWARD and not REVERSE:  # a reset cuts the final state off from the first step
            begins = tl.load(resets_of_b) != 0
            sr, si = tl.where(begins, 0.0, sr), tl.where(begins, 0.0, si)
        publish(slots, base + groups * GROUP, sr, si, True, RESETS, BLOCK)
    if s % GROUP < GROUP - 1:
        publish(slots, base + s, er, ei, passes, RESETS, BLOCK, last)
    FORWARD_ROWS: tl.constexpr = STEPS if CONJUGATE else 0
    last_tile = s == (length - 1) // TILE
    limit_forward = limit
    if BACKWARD:  # the state before the first step is `initial` (min(steps, length - 1 - s * TILE) is compiled wrongly)
        limit_forward -= last_tile.to(tl.int32)
    if CONJUGATE:
        forward += at + (row if BACKWARD else 0)
    CERTAIN: tl.constexpr = 0 if not FULL else (STEPS - 1 if BACKWARD else STEPS)
    qr, qi = load_rows(forward, limit_forward, N, row, FORWARD_ROWS, CERTAIN)  # loads during the look-back
    cr, ci = look_back(slots, powers + n, base, s, tiles, groups, er, ei, last, passes, RESETS, N, BLOCK, GROUP)
    xr, xi = multiply_add(pr, pi, cr + zero, ci + zero, fr, fi)
    if not FULL:
        hr, hi = cr, ci
        if last_tile:
            hr, hi = final_state(lr, li, xr, xi, ur, ui, cut, first, steps, RESETS, BACKWARD, STEPS)
    xr, xi, dr, di, tr, ti = write_results(
        states + at, lr, li, xr, xi, ur, ui, qr, qi, cut, limit, row,
        RESETS, BACKWARD, EXCLUSIVE, CONJUGATE, SUM_U, FULL, N, STEPS,
    )  # fmt: skip
    if SUM_U:
        dr, di, tr, ti = sum_two(dr, di, tr, ti)
    elif CONJUGATE:
        dr, di = sum_segments(dr, di)
    if last_tile:
        if FULL:
            hr, hi = sum_segments(tl.where(last, xr, 0.0), tl.where(last, xi, 0.0))
        if BACKWARD:  # the state before the first step is `initial`, which has no row
            br, bi = load_planes(initial + sequence * 2 * N + n, N, lam.dtype.element_ty)
            dr, di = add_conj_product(dr, di, br, bi, hr, hi)
            wr, wi = load_planes(lam + n, N, lam.dtype.element_ty)
            hr, hi = wr * hr + wi * hi, wr * hi - wi * hr
        elif RESETS:
            if reverse:  # the link to the step before the first
                begins = tl.load(resets_of_b) != 0
                hr, hi = tl.where(begins, 0.0, hr), tl.where(begins, 0.0, hi)
        store_planes(final + sequence * 2 * N + n, N, hr, hi)
    if CONJUGATE:
        store_sums(partials, part, n, direction, dr, di, tr, ti, N, DIRECTIONS, SUM_U)


@triton.jit
def _prefetch(pointer, there, COUNT: tl.constexpr, THREADS: tl.constexpr):
    """Prefetch COUNT numbers into L2 if they exist; each warp requests its part once."""
    EACH: tl.constexpr = COUNT * 32 // THREADS
    SIZE: tl.constexpr = EACH * (pointer.dtype.element_ty.primitive_bitwidth // 8)
    at = pointer + tl.arange(0, THREADS) // 32 * EACH
    given = (at, tl.full((THREADS,), SIZE, tl.int32), there.to(tl.int32) + tl.zeros((THREADS,), tl.int32))
    tl.inline_asm_elementwise(PREFETCH_ASSEMBLY, "=r,l,r,r", given, tl.int32, is_pure=False, pack=1)


@triton.jit
def _find_sequence(offsets, s, batch, TILE: tl.constexpr, SEQUENCES: tl.constexpr):
    """The sequence of tile s of a packed batch, and the number of tiles of all sequences before it."""
    i = tl.arange(0, SEQUENCES)
    begin = tl.load(offsets + i, mask=i < batch, other=0)
    end = tl.load(offsets + i + 1, mask=i < batch, other=0)
    tiles = tl.cumsum((end - begin + TILE - 1) // TILE, 0)  # up to the end of each
    earlier = (tiles <= s) & (i < batch)
    return tl.sum(earlier.to(tl.int32)).to(tl.int64), tl.max(tl.where(earlier, tiles, 0)).to(tl.int64)


settle(prepare_lookback_kernel, lookback_kernel)
