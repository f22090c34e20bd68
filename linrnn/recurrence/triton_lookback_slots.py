"""The protocol between the programs of a look-back: slots in memory, each written once and awaited by other programs.

As many tiles as a tile has segments form a group, and as many groups form a group of groups. The last tile of a group
publishes e of the whole group; the last tile of a group of groups publishes the state that enters the next one. So the
state that enters a tile is a sum over the slots of earlier tiles in its group and of earlier groups, each times a power
of λ, and a state crosses a group of groups in one hop. Every sum has a fixed order: equal inputs give equal bits,
in whatever order the programs run. A program waits only for programs with lower numbers, which a GPU starts first.

A slot needs no flag: it holds EMPTY, which no published number equals, until its one write. So every thread waits
independently for the numbers it needs.
"""

import triton
import triton.language as tl

from linrnn.recurrence.triton_common import load_planes, multiply_add
from linrnn.util.launch import ASSEMBLY

EMPTY = tl.constexpr(-1)  # as a float a NaN; another NaN, -2, is published in its place
# Loads two numbers from each of four tensors ($0 to $7, from $8 to $15) until none is EMPTY: from the first two tensors
# where $16 and $17 are not 0, from the other two where $18 and $19 are not 0. Two neighbouring numbers, as for every
# even N, are one load: with many waiting programs, more loads would exceed the bandwidth of the cache.
AWAIT = tl.constexpr("""{ .reg .pred p, q, r, s, again, apart; .reg .b64 gap;
setp.ne.s32 p, $16, 0; setp.ne.s32 q, $17, 0; setp.ne.s32 r, $18, 0; setp.ne.s32 s, $19, 0;
mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;
mov.b32 $4, 0; mov.b32 $5, 0; mov.b32 $6, 0; mov.b32 $7, 0;
sub.s64 gap, $9, $8; setp.ne.s64 apart, gap, 4; @apart bra single;
or.pred p, p, q; or.pred r, r, s;
pairs:
@p ld.relaxed.gpu.global.v2.b32 {$0, $1}, [$8];
@p ld.relaxed.gpu.global.v2.b32 {$2, $3}, [$10];
@r ld.relaxed.gpu.global.v2.b32 {$4, $5}, [$12];
@r ld.relaxed.gpu.global.v2.b32 {$6, $7}, [$14];
setp.eq.s32 p, $0, -1; setp.eq.or.s32 p, $1, -1, p; setp.eq.or.s32 p, $2, -1, p; setp.eq.or.s32 p, $3, -1, p;
setp.eq.s32 r, $4, -1; setp.eq.or.s32 r, $5, -1, r; setp.eq.or.s32 r, $6, -1, r; setp.eq.or.s32 r, $7, -1, r;
or.pred again, p, r; @again nanosleep.u32 100; @again bra pairs; bra there;
single:
@p ld.relaxed.gpu.global.b32 $0, [$8];
@q ld.relaxed.gpu.global.b32 $1, [$9];
@p ld.relaxed.gpu.global.b32 $2, [$10];
@q ld.relaxed.gpu.global.b32 $3, [$11];
@r ld.relaxed.gpu.global.b32 $4, [$12];
@s ld.relaxed.gpu.global.b32 $5, [$13];
@r ld.relaxed.gpu.global.b32 $6, [$14];
@s ld.relaxed.gpu.global.b32 $7, [$15];
setp.eq.s32 p, $0, -1; setp.eq.or.s32 p, $2, -1, p;
setp.eq.s32 q, $1, -1; setp.eq.or.s32 q, $3, -1, q;
setp.eq.s32 r, $4, -1; setp.eq.or.s32 r, $6, -1, r;
setp.eq.s32 s, $5, -1; setp.eq.or.s32 s, $7, -1, s;
or.pred again, p, q; or.pred again, again, r; or.pred again, again, s; @again nanosleep.u32 100; @again bra single;
there: }""")
AWAIT_REGISTERS = tl.constexpr(",".join(["=&r"] * 8 + ["l"] * 8 + ["r"] * 4))


@triton.jit
def look_back(
    slots, powers, base, s, tiles, groups, er, ei, last, passes,
    RESETS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The state that enters tile s; the last tile of a group publishes e of the group.

    Slot j of a group holds e of its tile j. One level up, slot 0 holds the state that enters a group of groups, and
    slot j + 1 holds e of its group j.
    """
    i, group = (s % GROUP).to(tl.int32), s // GROUP
    g = (group % GROUP).to(tl.int32)
    below, above = base + group * GROUP, base + (groups + group // GROUP) * GROUP
    of_groups = powers + GROUP * 2 * N
    j = tl.arange(0, GROUP)[:, None]
    tiles_before, groups_before = j < i, j <= g
    at_tiles, at_groups = _slot(slots, below + j, RESETS, BLOCK), _slot(slots, above + j, RESETS, BLOCK)
    tr, ti = _powers(powers, i - 1 - j, tiles_before, N)
    gr, gi = _powers(of_groups, g - j, groups_before, N)
    wr, wi = load_planes(powers + i * 2 * N, N, er.dtype)
    closes = (i == GROUP - 1) & (s + 1 < tiles)
    if closes | RESETS:
        asked_tiles = _peek(at_tiles, tiles_before, BLOCK)
        asked_groups = _peek(at_groups, groups_before, BLOCK)  # by now they may be published
        cr, ci, reaches = _gather(at_tiles, tiles_before, asked_tiles, tr, ti, RESETS, BLOCK, GROUP)
        through = passes & reaches
        hr, hi = cr, ci
        if closes:  # e of the group
            hr, hi = sum_segments(tl.where(last, er, 0.0), tl.where(last, ei, 0.0))
            hr, hi = _append(powers, cr, ci, hr, hi, passes, RESETS, N)
            if g < GROUP - 1:
                publish(slots, above + g + 1, hr, hi, through, RESETS, BLOCK)
        sr, si, _ = _gather(at_groups, groups_before, asked_groups, gr, gi, RESETS, BLOCK, GROUP)
        if closes & (g == GROUP - 1):  # s enters the group of groups
            hr, hi = _append(of_groups, sr, si, hr, hi, through, RESETS, N)
            publish(slots, above + GROUP, hr, hi, True, RESETS, BLOCK)
        if RESETS:
            sr, si = tl.where(reaches, sr, 0.0), tl.where(reaches, si, 0.0)
        cr, ci = multiply_add(wr, wi, sr, si, cr, ci)
    else:  # nothing to publish: one sum for both levels, since every sum is a barrier
        kr, ki, fr, fi = _await(at_tiles, at_tiles + BLOCK, tiles_before, at_groups, at_groups + BLOCK, groups_before)
        kr, ki = _multiply_published(tr, ti, kr, ki)
        fr, fi = _multiply_published(gr, gi, fr, fi)
        cr, ci = sum_segments(*multiply_add(wr, wi, fr, fi, kr, ki))
    return cr, ci


@triton.jit
def publish(slots, slot, re, im, passes, RESETS: tl.constexpr, BLOCK: tl.constexpr, mask=None):
    """Write a slot: the row of the state where `mask`, and whether a state passes through what the slot stands for."""
    at = _slot(slots, slot, RESETS, BLOCK) + tl.zeros_like(re).to(tl.int32)
    re, im = re.to(slots.dtype.element_ty, bitcast=True), im.to(slots.dtype.element_ty, bitcast=True)
    tl.store(at, tl.where(re == EMPTY, -2, re), mask=mask)
    tl.store(at + BLOCK, tl.where(im == EMPTY, -2, im), mask=mask)
    if RESETS:
        tl.store(at + 2 * BLOCK, tl.where(passes, 1, tl.zeros_like(re)), mask=mask)


@triton.jit
def _slot(slots, slot, RESETS: tl.constexpr, BLOCK: tl.constexpr):
    PLANES: tl.constexpr = 3 if RESETS else 2
    return slots + slot * (PLANES * BLOCK) + tl.arange(0, BLOCK)[None, :]


@triton.jit
def _powers(powers, k, wanted, N: tl.constexpr):
    """λ^k of the table where wanted, else zero."""
    wr = tl.load(powers + k * 2 * N, mask=wanted, other=0.0)
    wi = tl.load(powers + k * 2 * N + N, mask=wanted, other=0.0)
    return wr, wi


@triton.jit
def _peek(at, wanted, BLOCK: tl.constexpr):
    """The present content of slots."""
    re = tl.load(at, mask=wanted, other=0, volatile=True)
    return re, tl.load(at + BLOCK, mask=wanted, other=0, volatile=True)


@triton.jit
def _gather(at, wanted, asked, wr, wi, RESETS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Wait for slots: the sum of their states times powers of λ, and whether a state from before reaches the end."""
    asked_re, asked_im = asked
    missing, nothing = (asked_re == EMPTY) | (asked_im == EMPTY), wanted & False
    re, im, _, _ = _await(at, at + BLOCK, missing, at, at, nothing)
    re, im = tl.where(missing, re, asked_re), tl.where(missing, im, asked_im)
    re, im = _multiply_published(wr, wi, re, im)
    reaches = True
    if RESETS:  # only slots from the last cut on count
        lives, _, _, _ = _await(at + 2 * BLOCK, at + 2 * BLOCK, wanted, at, at, nothing)
        j = tl.arange(0, GROUP)[:, None]
        broken = tl.max(tl.where(wanted & (lives == 0), j, -1), axis=0)[None, :]
        re, im = tl.where(j >= broken, re, 0.0), tl.where(j >= broken, im, 0.0)
        reaches = broken < 0
    re, im = sum_segments(re, im)
    return re, im, reaches


@triton.jit
def _await(one, two, wanted, three, four, wanted_too):
    """The content of slots once it is published, zero where it is not wanted; all loads are in flight at once."""
    given = (one, two, three, four, wanted.to(tl.int32), wanted_too.to(tl.int32))
    if not ASSEMBLY:  # the interpreter runs programs in order
        one, two = tl.load(one, mask=wanted, other=0), tl.load(two, mask=wanted, other=0)
        three, four = tl.load(three, mask=wanted_too, other=0), tl.load(four, mask=wanted_too, other=0)
    else:
        one, two, three, four = tl.inline_asm_elementwise(
            AWAIT, AWAIT_REGISTERS, given, (tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=2
        )
    return one, two, three, four


@triton.jit
def _multiply_published(wr, wi, re, im):
    """A power of λ times the content of a slot."""
    re, im = re.to(wr.dtype, bitcast=True), im.to(wr.dtype, bitcast=True)
    return wr * re - wi * im, wr * im + wi * re


@triton.jit
def sum_segments(re, im):
    """The sum over all segments or slots; one reduction for both parts, since every reduction is a barrier."""
    return tl.reduce((re, im), 0, _add, keep_dims=True)


@triton.jit
def sum_two(ar, ai, br, bi):
    """`sum_segments` of two complex tensors in one reduction."""
    return tl.reduce((ar, ai, br, bi), 0, _add_both, keep_dims=True)


@triton.jit
def _add(re, im, next_re, next_im):
    return re + next_re, im + next_im


@triton.jit
def _add_both(ar, ai, br, bi, next_ar, next_ai, next_br, next_bi):
    return ar + next_ar, ai + next_ai, br + next_br, bi + next_bi


@triton.jit
def _append(powers, cr, ci, er, ei, passes, RESETS: tl.constexpr, N: tl.constexpr):
    """λ^(steps)·c + e, or e if c does not pass."""
    wr, wi = load_planes(powers + 2 * N, N, er.dtype)
    if RESETS:
        cr, ci = tl.where(passes, cr, 0.0), tl.where(passes, ci, 0.0)
    return multiply_add(wr, wi, cr, ci, er, ei)
