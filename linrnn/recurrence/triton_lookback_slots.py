"""What the programs of a look-back tell each other: slots in memory, which a program fills once and others wait for.

As many tiles as a tile has segments form a group, and as many groups again a group of groups. The last tile of a group
publishes e of the whole group, and the last of a group of groups the state that the next one starts with. So the start
of a tile is a sum over what the tiles before it in its group published, and the groups before that, each times its
power of λ: one hop takes a state through a group of groups. Every sum has a fixed order, and the same inputs give the
same bits, whoever comes first. A program waits only for those of lower numbers, which a GPU starts first.

A slot needs no flag: it is filled with EMPTY, which no published number equals, and what is published stays. So every
thread waits by itself for the numbers it needs.
"""

import re

import triton
import triton.language as tl

from linrnn.recurrence.triton_scan import _load_planes, _step
from linrnn.util.launch import ASSEMBLY

EMPTY = tl.constexpr(-1)  # as a float not a number; -2, another such, is published in its place
# Two numbers each of four tensors ($0 to $7, at $8 to $15), those of the first two where $16 and $17 are not 0, of the
# others where $18 and $19 are not: loaded until none is EMPTY. Where the two lie side by side, as they do if N is even,
# they are loaded as one: what many programs wait for must not be asked for more often than the cache can bear.
AWAIT = """{ .reg .pred p, q, r, s, again, apart; .reg .b64 gap;
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
there: }"""
TWICE = {"b32": "b64", "eq.s32": "eq.s64", "or.s32": "or.s64", "gap, 4": "gap, 8"}  # the same for numbers of 64 bits
AWAIT_32 = tl.constexpr(AWAIT)
AWAIT_64 = tl.constexpr(re.sub("|".join(TWICE), lambda found: TWICE[found[0]], AWAIT))
REGISTERS_32 = tl.constexpr(",".join(["=&r"] * 8 + ["l"] * 8 + ["r"] * 4))
REGISTERS_64 = tl.constexpr(",".join(["=&l"] * 8 + ["l"] * 8 + ["r"] * 4))


@triton.jit
def look_back(
    ends, powers, base, s, tiles, groups, er, ei, last, whole,
    RESETS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The state that tile s starts with; the last tile of a group publishes e of the group.

    In slot j of a group is e of its tile j. One level up, slot 0 has the state that a group of groups starts with, and
    slot j + 1 e of its group j.
    """
    i, group = (s % GROUP).to(tl.int32), s // GROUP
    g = (group % GROUP).to(tl.int32)
    below, above = base + group * GROUP, base + (groups + group // GROUP) * GROUP
    of_groups = powers + GROUP * 2 * N
    j = tl.arange(0, GROUP)[:, None]
    tiles_before, groups_before = j < i, j <= g
    at_tiles, at_groups = _slot(ends, below + j, RESETS, BLOCK), _slot(ends, above + j, RESETS, BLOCK)
    tr, ti = _powers(powers, i - 1 - j, tiles_before, N)
    gr, gi = _powers(of_groups, g - j, groups_before, N)
    wr, wi = _load_planes(powers + i * 2 * N, N, er.dtype)
    closes = (i == GROUP - 1) & (s + 1 < tiles)
    if closes | RESETS:
        asked_tiles = _ask_slots(at_tiles, tiles_before, BLOCK)
        asked_groups = _ask_slots(at_groups, groups_before, BLOCK)  # they may be there by now
        cr, ci, reaches = _gather(at_tiles, tiles_before, asked_tiles, tr, ti, RESETS, BLOCK, GROUP)
        through = whole & reaches
        hr, hi = cr, ci
        if closes:  # e of the group
            hr, hi = sums(tl.where(last, er, 0.0), tl.where(last, ei, 0.0))
            hr, hi = _after(powers, cr, ci, hr, hi, whole, RESETS, N)
            if g < GROUP - 1:
                publish(ends, above + g + 1, hr, hi, through, RESETS, BLOCK)
        sr, si, _ = _gather(at_groups, groups_before, asked_groups, gr, gi, RESETS, BLOCK, GROUP)
        if closes & (g == GROUP - 1):  # s is what the group starts with
            hr, hi = _after(of_groups, sr, si, hr, hi, through, RESETS, N)
            publish(ends, above + GROUP, hr, hi, True, RESETS, BLOCK)
        if RESETS:
            sr, si = tl.where(reaches, sr, 0.0), tl.where(reaches, si, 0.0)
        cr, ci = _step(wr, wi, sr, si, cr, ci)
    else:  # nothing more to publish: both in one sum, since threads wait for each other at every sum
        kr, ki, fr, fi = _await(at_tiles, at_tiles + BLOCK, tiles_before, at_groups, at_groups + BLOCK, groups_before)
        kr, ki = _times(tr, ti, kr, ki)
        fr, fi = _times(gr, gi, fr, fi)
        cr, ci = sums(*_step(wr, wi, fr, fi, kr, ki))
    return cr, ci


@triton.jit
def publish(ends, slot, re, im, whole, RESETS: tl.constexpr, BLOCK: tl.constexpr, which=None):
    """Fill a slot: a state, the row `which` of it, and whether one that enters what it stands for reaches its end."""
    at = _slot(ends, slot, RESETS, BLOCK) + tl.zeros_like(re).to(tl.int32)
    re, im = re.to(ends.dtype.element_ty, bitcast=True), im.to(ends.dtype.element_ty, bitcast=True)
    tl.store(at, tl.where(re == EMPTY, -2, re), mask=which)
    tl.store(at + BLOCK, tl.where(im == EMPTY, -2, im), mask=which)
    if RESETS:
        tl.store(at + 2 * BLOCK, tl.where(whole, 1, tl.zeros_like(re)), mask=which)


@triton.jit
def _slot(ends, slot, RESETS: tl.constexpr, BLOCK: tl.constexpr):
    PLANES: tl.constexpr = 3 if RESETS else 2
    return ends + slot * (PLANES * BLOCK) + tl.arange(0, BLOCK)[None, :]


@triton.jit
def _powers(powers, k, wanted, N: tl.constexpr):
    """The k-th of λ, where wanted; else zero."""
    wr = tl.load(powers + k * 2 * N, mask=wanted, other=0.0)
    wi = tl.load(powers + k * 2 * N + N, mask=wanted, other=0.0)
    return wr, wi


@triton.jit
def _ask_slots(at, wanted, BLOCK: tl.constexpr):
    """What is in slots now."""
    re = tl.load(at, mask=wanted, other=0, volatile=True)
    return re, tl.load(at + BLOCK, mask=wanted, other=0, volatile=True)


@triton.jit
def _gather(at, wanted, asked, wr, wi, RESETS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Wait for slots: their sum as the last wanted sees it, and whether a state from before them reaches it."""
    asked_re, asked_im = asked
    missing, nothing = (asked_re == EMPTY) | (asked_im == EMPTY), wanted & False
    re, im, _, _ = _await(at, at + BLOCK, missing, at, at, nothing)
    re, im = tl.where(missing, re, asked_re), tl.where(missing, im, asked_im)
    re, im = _times(wr, wi, re, im)
    reaches = True
    if RESETS:  # from the last slot on that nothing gets through
        lives, _, _, _ = _await(at + 2 * BLOCK, at + 2 * BLOCK, wanted, at, at, nothing)
        j = tl.arange(0, GROUP)[:, None]
        broken = tl.max(tl.where(wanted & (lives == 0), j, -1), axis=0)[None, :]
        re, im = tl.where(j >= broken, re, 0.0), tl.where(j >= broken, im, 0.0)
        reaches = broken < 0
    re, im = sums(re, im)
    return re, im, reaches


@triton.jit
def _await(one, two, wanted, three, four, wanted_too):
    """What is in these slots, once it has been published; zero where it is not wanted.

    A thread has all its loads on their way at once.
    """
    given = (one, two, three, four, wanted.to(tl.int32), wanted_too.to(tl.int32))
    if not ASSEMBLY:  # all others have ended before
        one, two = tl.load(one, mask=wanted, other=0), tl.load(two, mask=wanted, other=0)
        three, four = tl.load(three, mask=wanted_too, other=0), tl.load(four, mask=wanted_too, other=0)
    elif one.dtype.element_ty == tl.int64:
        one, two, three, four = tl.inline_asm_elementwise(
            AWAIT_64, REGISTERS_64, given, (tl.int64, tl.int64, tl.int64, tl.int64), is_pure=False, pack=2
        )
    else:
        one, two, three, four = tl.inline_asm_elementwise(
            AWAIT_32, REGISTERS_32, given, (tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=2
        )
    return one, two, three, four


@triton.jit
def _times(wr, wi, re, im):
    """A power of λ times what was published."""
    re, im = re.to(wr.dtype, bitcast=True), im.to(wr.dtype, bitcast=True)
    return wr * re - wi * im, wr * im + wi * re


@triton.jit
def sums(re, im):
    """Over all segments or slots; both at once, as threads wait for each other for every sum."""
    return tl.reduce((re, im), 0, _add, keep_dims=True)


@triton.jit
def sums_of_both(ar, ai, br, bi):
    """As `sums`, of two at once."""
    return tl.reduce((ar, ai, br, bi), 0, _add_both, keep_dims=True)


@triton.jit
def _add(re, im, next_re, next_im):
    return re + next_re, im + next_im


@triton.jit
def _add_both(ar, ai, br, bi, next_ar, next_ai, next_br, next_bi):
    return ar + next_ar, ai + next_ai, br + next_br, bi + next_bi


@triton.jit
def _after(powers, cr, ci, er, ei, whole, RESETS: tl.constexpr, N: tl.constexpr):
    """The state after what turns c into λ^(its steps)·c + e."""
    wr, wi = _load_planes(powers + 2 * N, N, er.dtype)
    if RESETS:
        cr, ci = tl.where(whole, cr, 0.0), tl.where(whole, ci, 0.0)
    return _step(wr, wi, cr, ci, er, ei)
