"""The scan of few, long sequences on NVIDIA GPUs: every tile has a program of its own, and u is read once.

A program loads its tile, cuts it into segments of consecutive steps and walks these side by side from zero; put
together, they give the state e with which the tile ends if it starts from zero. It publishes e, finds the state its
tile really starts with from what the tiles before it published, and walks again to write the results. What programs
tell each other is in `triton_lookback_slots`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from linrnn.recurrence.triton_lookback_slots import EMPTY, look_back, publish, sums, sums_of_both
from linrnn.recurrence.triton_scan import (
    Tile,
    Tiles,
    _add_conj_times,
    _channels,
    _extent,
    _flags,
    _load_planes,
    _options,
    _step,
    _store_planes,
    _store_sums,
    _wider,
    channels,
    kinds,
)
from linrnn.util.launch import FUSED, early, on, settle

# By the bytes of a number: tiles for at least so many numbers, and what a tile is: steps of a segment, segments,
# channels of a program, warps, registers of a thread (as few as hold the tile, whose bytes are in flight until it is
# written).
FORWARD: dict[int, Tiles] = {
    2: ((0, (32, 8, 32, 4, 128)),),
    4: ((0, (16, 8, 32, 4, 128)),),
    8: ((0, (4, 16, 32, 4, 168)),),
}
BACKWARD: dict[int, Tiles] = {
    2: ((24_000_000, (24, 8, 32, 4, 168)), (0, (16, 8, 32, 4, 128))),
    4: ((0, (12, 8, 32, 4, 168)),),
    8: ((0, (4, 16, 32, 4, 168)),),
}
# Smaller ones for the gradient of one sequence of at most so many channels, a single chain of programs.
ALONE: dict[int, Tile] = {2: (32, 4, 32, 2, 255), 4: (16, 4, 32, 2, 255)}
NARROW = 16
AHEAD = 132  # the program so many later finds its tile in the cache; 0: none does
FILL = 1024  # words that a program empties
# Bring memory to the cache, if $3 is not 0: from $1 on, $2 bytes.
FETCH_ASSEMBLY = tl.constexpr(
    "{.reg .pred p; setp.ne.s32 p, $3, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;}"
)


def run(
    u: Tensor,
    lam: Tensor,
    start: Tensor,
    resets: Tensor | None,
    reverse: bool,
    offsets: Tensor | None,
    before: bool,
    partner: Tensor | None = None,
    initial: Tensor | None = None,
    sum_u: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `triton_scan._run`. With `initial` the walk is that of the gradient of `scan`: the partner are its states."""
    conjugate, back = partner is not None, initial is not None
    batch, length, *directions, _, n = u.shape
    if offsets is not None:
        batch = len(offsets) - 1
    ways = directions[0] if directions else 1
    tiles_by_size = (BACKWARD if conjugate else FORWARD)[u.itemsize]
    tile = next(tile for least, tile in tiles_by_size if u.numel() >= least)
    if conjugate and resets is None and batch * ways == 1 and n <= NARROW:
        tile = ALONE.get(u.itemsize, tile)
    rows, segments, block, warps, registers = tile
    if resets is not None:  # their range has to be a power of two; compiling takes time with its cube
        rows = 1 << (min(rows, 16).bit_length() - 1)
    narrow = channels(block, n)
    segments, block = min(segments * block // narrow, 64), narrow  # of fewer channels more steps
    warps = max(1, min(warps, segments * block // 64))  # at least two numbers of a group's slots for each thread
    blocks, tiles = triton.cdiv(n, block), triton.cdiv(length, rows * segments)
    groups = triton.cdiv(tiles, segments)
    lanes, slots = batch * ways * blocks, (groups + triton.cdiv(groups, segments)) * segments
    if offsets is not None:  # at most so many tiles; t of a sequence and its groups take at most 2(t + segments) slots
        tiles += batch
        lanes, slots = ways * blocks, 2 * (tiles + segments * batch)
    states, final = torch.empty_like(u), torch.empty_like(start)
    powers = lam.new_empty(2 * segments + 1, 2, n)
    words = lanes * slots * (2 if resets is None else 3) * block
    ends = torch.empty(words, dtype=torch.int64 if lam.itemsize == 8 else torch.int32, device=u.device)
    partial = None
    if conjugate:  # of each tile; sequences end to end do not have them all
        new = lam.new_empty if offsets is None else lam.new_zeros
        partial = new(lanes // blocks * tiles, kinds(u, sum_u), 2, n)
    shape = {"N": n, "ROWS": rows, "SEGMENTS": segments, "BLOCK": block, "EARLY": early(u.device)}
    options = _options(resets, offsets, reverse) | {"BACK": back, "BEFORE": before, "CONJUGATE": conjugate}
    options |= {"DIRECTIONS": ways, "SEQUENCES": 1 if offsets is None else triton.next_power_of_2(batch)}
    options |= {"FULL": offsets is None and length % (rows * segments) == 0}  # no tile has fewer steps
    options |= {"SUM_U": sum_u}
    # where a tile of all channels lies in one piece, of which every warp takes its share
    fetch = (
        AHEAD > 0 and shape["EARLY"] and ways == 1 and rows * segments * 2 * n * u.itemsize % (16 * blocks * warps) == 0
    )
    fetch = fetch and all(_aligned(x) for x in (u, partner) if x is not None)
    options |= {"FETCH": fetch, "THREADS": 32 * warps}
    given = (u, lam, start, _flags(resets), offsets, partner, initial)
    with on(u.device):
        grid = (max(triton.cdiv(words, FILL), len(powers) * blocks),)
        _prepare[grid](lam, powers, ends, words, CONJUGATE=conjugate, FILL=FILL, **shape, **FUSED)
        sizes = batch, length, tiles, lanes, slots, max(1, AHEAD // lanes)
        options |= {"num_warps": warps, "maxnreg": registers, "launch_pdl": shape["EARLY"]}
        _scan[(tiles * lanes,)](*given, states, final, partial, powers, ends, *sizes, **options, **shape, **FUSED)
    return states, final, partial


def _aligned(x: Tensor) -> bool:
    """Whether every step of x (..., 2, N) begins at a multiple of 16 bytes, as what is brought to the cache must."""
    return x.data_ptr() % 16 == 0 and 2 * x.shape[-1] * x.itemsize % 16 == 0


@triton.jit(do_not_specialize=["words"])
def _prepare(
    lam, powers, ends, words,
    CONJUGATE: tl.constexpr, FILL: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Empty the slots, and take λ^(k tiles), λ^(k groups) and λ^(steps of a segment) from float64."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    program = tl.program_id(0)
    at = program.to(tl.int64) * FILL + tl.arange(0, FILL)
    tl.store(ends + at, EMPTY, mask=at < words)
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    GROUP: tl.constexpr = SEGMENTS
    k, n = program // BLOCKS, _channels(program % BLOCKS, N, BLOCK)
    if k <= 2 * GROUP:
        power = tl.where(k < GROUP, k, (k - GROUP) * GROUP) * (ROWS * SEGMENTS)
        power = tl.where(k == 2 * GROUP, ROWS, power)
        wr, wi = _load_planes(lam + n, N, tl.float64)
        if CONJUGATE:
            wi = -wi
        pr, pi = tl.full((1, BLOCK), 1.0, tl.float64), tl.zeros((1, BLOCK), tl.float64)
        while power > 0:
            if power % 2 == 1:
                pr, pi = pr * wr - pi * wi, pr * wi + pi * wr
            wr, wi = wr * wr - wi * wi, 2 * wr * wi
            power = power // 2
        _store_planes(powers + k * 2 * N + n, N, pr, pi)


@triton.jit(
    do_not_specialize=["batch", "length", "tiles", "lanes", "slots", "ahead"],
    do_not_specialize_on_alignment=["resets"],
)
def _scan(
    u, lam, starts, resets, offsets, partner, initial, states, final, partial, powers, ends,
    batch, length, tiles, lanes, slots, ahead,
    REVERSE: tl.constexpr, RESETS: tl.constexpr, OFFSETS: tl.constexpr, BACK: tl.constexpr, BEFORE: tl.constexpr,
    CONJUGATE: tl.constexpr, DIRECTIONS: tl.constexpr, SEQUENCES: tl.constexpr, FULL: tl.constexpr,
    FETCH: tl.constexpr, THREADS: tl.constexpr, SUM_U: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One tile: see the notes on top and those on memory in `triton_scan`.

    A lane is a block of channels of a sequence, or of a row of sequences end to end, one after the other in its tiles.
    """
    BLOCKS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    TILE: tl.constexpr = SEGMENTS * ROWS
    GROUP: tl.constexpr = SEGMENTS  # tiles; then the tensors of both have the same shape, and the same layout
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    program = tl.program_id(0)
    lane, s = (program % lanes).to(tl.int64), (program // lanes).to(tl.int64)
    n = _channels(lane % BLOCKS, N, BLOCK)
    b, way = lane // BLOCKS // DIRECTIONS, lane // BLOCKS % DIRECTIONS
    part, base = lane // BLOCKS * tiles + s, lane * slots
    if OFFSETS:
        b, earlier = _find(offsets, s, batch, TILE, SEQUENCES)
        if b == batch:  # there are not so many tiles
            return
        s -= earlier
        base += 2 * (earlier + GROUP * b)
    sequence = b * DIRECTIONS + way
    reverse = REVERSE if DIRECTIONS == 1 else (way == 1) != REVERSE
    begin, length = _extent(offsets, b, length, OFFSETS)
    if OFFSETS:
        tiles = (length + TILE - 1) // TILE
    steps = tl.minimum(TILE, length - s * TILE).to(tl.int32)
    groups = (tiles + GROUP - 1) // GROUP
    first = tl.arange(0, SEGMENTS)[:, None] * ROWS
    limit = steps - first  # rows of each segment
    k = length - 1 - s * TILE if reverse else s * TILE
    forth = -1 if reverse else 1
    row = DIRECTIONS * 2 * N * forth
    at = ((begin + k) * DIRECTIONS + way) * 2 * N + n + first * row
    ur, ui = _ask(u + at, limit, N, row, ROWS, ROWS if FULL else 0)
    if FETCH:  # each block of channels takes its share of the tile `ahead` of this one
        SHARE: tl.constexpr = TILE * 2 * N // BLOCKS
        share = (begin + k + (1 - TILE if reverse else 0)) * 2 * N + lane % BLOCKS * SHARE
        _fetch(u + (share + ahead * TILE * row), (s + ahead + 1) * TILE <= length, SHARE, THREADS)
        if CONJUGATE:  # the partner of this tile, which is read later than u
            _fetch(partner + share, (s + 1) * TILE <= length, SHARE, THREADS)
    resets_of_b = resets + begin if RESETS else resets
    # of the gradient, the cut between a step and the one that is walked next
    cut = _cuts(resets_of_b, k, length, forth, (not reverse) if BACK else reverse, RESETS, SEGMENTS, ROWS)
    zero = tl.zeros((SEGMENTS, BLOCK), lam.dtype.element_ty)
    lr, li = _load_planes(lam + n, N, lam.dtype.element_ty)
    lr, li = lr + zero, zero - li if CONJUGATE else li + zero
    if EARLY:
        tl.extra.cuda.gdc_wait()  # for `_prepare`, while u is on its way
    ar, ai = _load_planes(powers + 2 * GROUP * 2 * N + n, N, lam.dtype.element_ty)
    ar, ai = ar + zero, ai + zero
    er, ei = _walk(ur, ui, lr, li, cut, RESETS, BACK, ROWS)
    whole = True  # whether a state that enters the tile reaches its end
    if RESETS:
        cuts = _count(cut, SEGMENTS, ROWS)
        whole = tl.sum(cuts) == 0
        ar, ai = tl.where(cuts > 0, 0.0, ar), tl.where(cuts > 0, 0.0, ai)
    maps = tl.associative_scan((ar, ai, er, ei, zero + 1, zero, zero, zero), 0, _then)
    ar, ai, er, ei, pr, pi, fr, fi = maps
    last = first == TILE - ROWS  # the segment whose e is that of the tile

    if s == 0:
        sr, si = _load_planes(starts + sequence * 2 * N + n, N, lam.dtype.element_ty)
        if RESETS and BACK and not REVERSE:  # the gradient of the final state, which is cut off from the first step
            begins = tl.load(resets_of_b) != 0
            sr, si = tl.where(begins, 0.0, sr), tl.where(begins, 0.0, si)
        publish(ends, base + groups * GROUP, sr, si, True, RESETS, BLOCK)
    if s % GROUP < GROUP - 1:
        publish(ends, base + s, er, ei, whole, RESETS, BLOCK, last)
    PARTNERS: tl.constexpr = ROWS if CONJUGATE else 0
    last_tile = s == (length - 1) // TILE
    limit_partner = limit
    if BACK:  # that of the last step is the initial state (min(steps, length - 1 - s * TILE) is compiled wrongly)
        limit_partner -= last_tile.to(tl.int32)
    if CONJUGATE:
        partner += at + (row if BACK else 0)
    SURE: tl.constexpr = 0 if not FULL else (ROWS - 1 if BACK else ROWS)
    qr, qi = _ask(partner, limit_partner, N, row, PARTNERS, SURE)  # on their way while this program waits
    cr, ci = look_back(ends, powers + n, base, s, tiles, groups, er, ei, last, whole, RESETS, N, BLOCK, GROUP)
    xr, xi = _step(pr, pi, cr + zero, ci + zero, fr, fi)
    if not FULL:
        hr, hi = cr, ci
        if last_tile:
            hr, hi = _end(lr, li, xr, xi, ur, ui, cut, first, steps, RESETS, BACK, ROWS)
    xr, xi, dr, di, tr, ti = _write(
        states + at, lr, li, xr, xi, ur, ui, qr, qi, cut, limit, row,
        RESETS, BACK, BEFORE, CONJUGATE, SUM_U, FULL, N, ROWS,
    )  # fmt: skip
    if SUM_U:
        dr, di, tr, ti = sums_of_both(dr, di, tr, ti)
    elif CONJUGATE:
        dr, di = sums(dr, di)
    if last_tile:
        if FULL:
            hr, hi = sums(tl.where(last, xr, 0.0), tl.where(last, xi, 0.0))
        if BACK:  # the partner of the last step is the initial state, which has no row; and what goes back from there
            br, bi = _load_planes(initial + sequence * 2 * N + n, N, lam.dtype.element_ty)
            dr, di = _add_conj_times(dr, di, br, bi, hr, hi)
            wr, wi = _load_planes(lam + n, N, lam.dtype.element_ty)
            hr, hi = wr * hr + wi * hi, wr * hi - wi * hr
        elif RESETS:
            if reverse:  # the link to what would come before the first step
                begins = tl.load(resets_of_b) != 0
                hr, hi = tl.where(begins, 0.0, hr), tl.where(begins, 0.0, hi)
        _store_planes(final + sequence * 2 * N + n, N, hr, hi)
    if CONJUGATE:
        _store_sums(partial, part, n, way, dr, di, tr, ti, N, DIRECTIONS, SUM_U)


@triton.jit
def _fetch(pointer, there, COUNT: tl.constexpr, THREADS: tl.constexpr):
    """Have so many numbers brought to the cache, if they are there: each warp asks for its part, once."""
    EACH: tl.constexpr = COUNT * 32 // THREADS
    SIZE: tl.constexpr = EACH * (pointer.dtype.element_ty.primitive_bitwidth // 8)
    at = pointer + tl.arange(0, THREADS) // 32 * EACH
    given = (at, tl.full((THREADS,), SIZE, tl.int32), there.to(tl.int32) + tl.zeros((THREADS,), tl.int32))
    tl.inline_asm_elementwise(FETCH_ASSEMBLY, "=r,l,r,r", given, tl.int32, is_pure=False, pack=1)


@triton.jit
def _find(offsets, s, batch, TILE: tl.constexpr, SEQUENCES: tl.constexpr):
    """The sequence of tile s of a row, and how many tiles the sequences before it have."""
    i = tl.arange(0, SEQUENCES)
    begin = tl.load(offsets + i, mask=i < batch, other=0)
    end = tl.load(offsets + i + 1, mask=i < batch, other=0)
    tiles = tl.cumsum((end - begin + TILE - 1) // TILE, 0)  # up to the end of each
    earlier = (tiles <= s) & (i < batch)
    return tl.sum(earlier.to(tl.int32)).to(tl.int64), tl.max(tl.where(earlier, tiles, 0)).to(tl.int64)


@triton.jit
def _write(
    states, lr, li, xr, xi, ur, ui, qr, qi, cut, limit, row,
    RESETS: tl.constexpr, BACK: tl.constexpr, BEFORE: tl.constexpr, CONJUGATE: tl.constexpr, SUM_U: tl.constexpr,
    FULL: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The second walk, from where each segment starts: the state it ends with, Σ conj(partner)·result and Σ result."""
    er, ei, tr, ti = tl.zeros_like(lr), tl.zeros_like(li), tl.zeros_like(lr), tl.zeros_like(li)
    for r in tl.static_range(ROWS):
        there = r < limit
        vr, vi = _anew(ur[r], ui[r], lr.dtype)
        if RESETS and not BACK:
            xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
        yr, yi = xr, xi
        nr, ni = _step_back(lr, li, xr, xi, vr, vi, r) if BACK else _step(lr, li, xr, xi, vr, vi)
        if not BEFORE:
            yr, yi = nr, ni
        if CONJUGATE:
            wr, wi = _anew(qr[r], qi[r], lr.dtype)
            if RESETS and BACK:
                wr, wi = tl.where(cut[r], 0.0, wr), tl.where(cut[r], 0.0, wi)
            er, ei = _add_conj_times(er, ei, wr, wi, yr, yi)
        if SUM_U:
            tr, ti = (tr + yr, ti + yi) if FULL else (tl.where(there, tr + yr, tr), tl.where(there, ti + yi, ti))
        if RESETS and BACK:
            nr, ni = tl.where(cut[r], 0.0, nr), tl.where(cut[r], 0.0, ni)
        xr, xi = nr, ni
        if FULL:
            _store_planes(states + r * row, N, yr, yi)
        else:
            tl.store(states + r * row, yr.to(states.dtype.element_ty), mask=there)
            tl.store(states + r * row + N, yi.to(states.dtype.element_ty), mask=there)
    return xr, xi, er, ei, tr, ti


@triton.jit
def _ask(pointer, limit, N: tl.constexpr, row, ROWS: tl.constexpr, SURE: tl.constexpr):
    """Load the rows, real and imaginary parts; zero where there is no such step, as may be after the first SURE."""
    re = ()
    im = ()
    for r in tl.static_range(ROWS):
        if r < SURE:
            re = re + (tl.load(pointer + r * row),)
            im = im + (tl.load(pointer + r * row + N),)
        else:
            re = re + (tl.load(pointer + r * row, mask=r < limit, other=0.0),)
            im = im + (tl.load(pointer + r * row + N, mask=r < limit, other=0.0),)
    return re, im


@triton.jit
def _walk(ur, ui, lr, li, cut, RESETS: tl.constexpr, BACK: tl.constexpr, ROWS: tl.constexpr):
    """Each segment from zero: e of x ↦ a·x + e."""
    xr, xi = tl.zeros_like(lr), tl.zeros_like(li)
    for r in tl.static_range(ROWS):
        vr, vi = _anew(ur[r], ui[r], lr.dtype)
        xr, xi = _one(lr, li, xr, xi, vr, vi, cut, r, RESETS, BACK)
    if BACK:  # what goes on from there is conj(λ)·g
        xr, xi = lr * xr - li * xi, lr * xi + li * xr
    return xr, xi


@triton.jit
def _end(
    lr, li, xr, xi, ur, ui, cut, first, steps, RESETS: tl.constexpr, BACK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """The state after the last step of the sequence, which is in this tile, from those its segments start with."""
    for r in tl.static_range(ROWS):
        vr, vi = _anew(ur[r], ui[r], lr.dtype)
        nr, ni = _one(lr, li, xr, xi, vr, vi, cut, r, RESETS, BACK)
        there = first + r < steps
        xr, xi = tl.where(there, nr, xr), tl.where(there, ni, xi)
    ends_here = (first < steps) & (first + ROWS >= steps)
    return sums(tl.where(ends_here, xr, 0.0), tl.where(ends_here, xi, 0.0))


@triton.jit
def _one(lr, li, xr, xi, vr, vi, cut, r: tl.constexpr, RESETS: tl.constexpr, BACK: tl.constexpr):
    """One step, cut where a sequence begins."""
    if RESETS and not BACK:
        xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
    xr, xi = _step_back(lr, li, xr, xi, vr, vi, r) if BACK else _step(lr, li, xr, xi, vr, vi)
    if RESETS and BACK:
        xr, xi = tl.where(cut[r], 0.0, xr), tl.where(cut[r], 0.0, xi)
    return xr, xi


@triton.jit
def _step_back(lr, li, gr, gi, vr, vi, r: tl.constexpr):
    """The next g: of the first row v + g, where g stands for what comes from outside, of the others v + conj(λ)·g."""
    if r == 0:
        return vr + gr, vi + gi
    return _step(lr, li, gr, gi, vr, vi)


@triton.jit
def _anew(re, im, DTYPE: tl.constexpr):
    """In the type of the state, made again for each walk: what is kept between them is as small as in memory."""
    return _wider(re, DTYPE, True, False), _wider(im, DTYPE, True, False)


@triton.jit
def _then(
    ar, ai, er, ei, pr, pi, fr, fi,
    next_ar, next_ai, next_er, next_ei, next_pr, next_pi, next_fr, next_fi,
):  # fmt: skip
    """The map of two stretches of segments, x ↦ a·x + e, and that of all segments but the last, x ↦ p·x + f."""
    fr, fi = _step(next_pr, next_pi, er, ei, next_fr, next_fi)
    er, ei = _step(next_ar, next_ai, er, ei, next_er, next_ei)
    pr, pi = next_pr * ar - next_pi * ai, next_pr * ai + next_pi * ar
    return next_ar * ar - next_ai * ai, next_ar * ai + next_ai * ar, er, ei, pr, pi, fr, fi


@triton.jit
def _cuts(resets, k, length, forth, reverse, RESETS: tl.constexpr, SEGMENTS: tl.constexpr, ROWS: tl.constexpr):
    """For each row, whether no state comes to its steps from those that the scan walks before them.

    k is the first step of the tile, the others follow in the order of the walk. Anything where there is no such step.
    """
    cut = ()
    if RESETS:
        later = k + (tl.arange(0, SEGMENTS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]) * forth
        if reverse:
            later += 1
        cut = _columns(tl.load(resets + later, mask=(later >= 0) & (later < length), other=0))
    return cut


@triton.jit
def _columns(tile):
    """A tile column by column, as conditions."""
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
def _count(cut, SEGMENTS: tl.constexpr, ROWS: tl.constexpr):
    """The cuts of each segment."""
    cuts = tl.zeros((SEGMENTS, 1), tl.int32)
    for r in tl.static_range(ROWS):
        cuts += cut[r].to(tl.int32)
    return cuts


settle(_prepare, _scan)
