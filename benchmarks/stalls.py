"""How many cycles a step of the scan's walk takes, read from the code it is compiled to. Needs no GPU.

    python benchmarks/stalls.py [--shape 32x4096x192] [--pass backward] [--tile 32x64x2x8] [--registers 128]
                                [--against results/bench/tiles.json] [--out docs/pictures/stalls.png] [--json FILE]

A tile is its steps, channels of a program, warps and tiles on their way, as in the tables of `triton_scan`; by
default some of each kind. One warp is followed through the loop. Its instructions go out in order; each says how many
cycles the next has to wait and which loads it needs, and how long loads take is guessed. What memory does is not in it:
this is how fast the walk would be if all bytes were there in time.
"""

import argparse
import itertools
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import measure
import torch
import triton
from tiles import Candidate, choose
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import KernelInterface

from linrnn.bench.scan import Shape
from linrnn.paper.figures import style
from linrnn.recurrence import triton_backend
from linrnn.recurrence.interface import Options, Solved

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
TILES = [
    *("16x32x1x8", "32x32x1x4", "32x64x1x6", "8x64x2x10", "16x64x2x8", "32x64x2x8"),
    *("8x128x2x6", "16x128x2x6", "32x128x2x6", "16x128x4x6", "32x128x4x6"),
]
REGISTERS = (None, 128, 255)
# Cycles until a result is there; all others take a fixed time, which is in the instruction before its use.
LATENCY = {"LDS": 29, "LDSM": 33, "STG": 20, "LDGSTS": 20, "F2FP": 6, "BAR": 20, "LDGDEPBAR": 10, "DADD": 16, "F2F": 16}
PIPE = {"LDS": 2, "STG": 2, "LDGSTS": 2, "LDSM": 8}  # cycles in the memory pipe, where eight more can wait
READ = 8  # cycles until an instruction in that pipe has read its registers


class Instruction(NamedTuple):
    """One line of the machine code, and what its upper bits say about time."""

    text: str
    stall: int  # cycles until the next
    writes: int  # the barrier that is free once the result is there; 7: none
    reads: int  # the same for the operands
    waits: int  # the barriers it waits for, a bit each

    @property
    def operation(self) -> str:
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0].split(".")[0]


def compiled(shape: Shape, way: str, tile: tuple[int, ...], registers: int | None) -> bytes:
    """The walk in bfloat16 for an H100 or H200, as `triton_scan` would start it."""
    batch, length, n = shape
    found: list[Any] = []

    def lower(kernel: Any, _: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            given = dict(zip(kernel.arg_names, arguments, strict=False))
            given |= {name: options.pop(name) for name in kernel.arg_names if name in options}
            fixed = {p.name for p in kernel.params if p.is_constexpr or given[p.name] is None}
            kinds = {k: TYPES[v.dtype] if isinstance(v, torch.Tensor) else "i32" for k, v in given.items()}
            kinds = {k: "constexpr" if k in fixed else kinds[k] for k in kernel.arg_names}
            aligned = {(i,): [("tt.divisibility", 16)] for i, kind in enumerate(kinds.values()) if kind[0] == "*"}
            source = ASTSource(kernel, kinds, {name: given[name] for name in fixed}, aligned)
            found.append(triton.compile(source, target=HOPPER, options=options))

        return call

    u = torch.empty(batch, length, 2, n, dtype=torch.bfloat16, device="meta")
    lam, state = torch.empty(2, n, device="meta"), torch.empty(batch, 2, n, device="meta")
    choose(Candidate("walk", tile, registers), torch.bfloat16)
    launch, KernelInterface.__getitem__ = KernelInterface.__getitem__, lower
    try:
        if way == "forward":
            triton_backend.scan(u, lam, state, Options())
        else:
            triton_backend.scan_backward(u, state, Solved(u, lam, state, Options()))
    finally:
        KernelInterface.__getitem__ = launch
    code: bytes = found[0].asm["cubin"]
    return code


def loop(code: bytes) -> list[Instruction]:
    """The instructions of the longest loop."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [triton.knobs.nvidia.nvdisasm.path, "-c", "-hex", file.name]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    loops: list[list[Instruction]] = []
    for line, after in itertools.pairwise(lines):
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = len(instructions)
        if (code_line := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)) is None:
            continue
        times = int(after.split("0x")[1].split()[0], 16) >> 41
        parts = times & 15, times >> 5 & 7, times >> 8 & 7, times >> 11 & 63
        instructions.append(Instruction(code_line[1].strip(), *parts))
        if (back := re.search(r"BRA `\((\.L\w+)\)", line)) and back[1] in labels:
            loops.append(instructions[labels[back[1]] :])
    return max(loops, key=len)


def cycles(instructions: list[Instruction]) -> int:
    """Of one turn of the loop, after two others."""
    now = pipe = start = 0
    free = [0] * 8  # when each barrier is
    for _ in range(3):
        start = now
        for each in instructions:
            now = max([now, *(free[i] for i in range(6) if each.waits >> i & 1)])
            if each.operation in PIPE:
                now = max(now, pipe - 8)
                pipe = max(pipe, now) + PIPE[each.operation]
            if each.writes != 7:
                free[each.writes] = max(now, pipe) + LATENCY.get(each.operation, 6)
            if each.reads != 7:
                free[each.reads] = max(now, pipe) + READ
            now += max(1, each.stall)
    return now - start


def rows(
    shape: Shape, ways: list[str], tiles: list[tuple[int, ...]], limits: list[int | None]
) -> Iterator[dict[str, Any]]:
    for way, tile, registers in itertools.product(ways, tiles, limits):
        body = loop(compiled(shape, way, tile, registers))
        used = 1 + max(int(r) for each in body for r in re.findall(r"\bR(\d+)\b", each.text))
        row = {"shape": shape, "pass": way, "tile": tile, "registers": registers, "used": used}
        yield row | {"instructions": len(body) / tile[0], "cycles": cycles(body) / tile[0]}


def draw(results: list[dict[str, Any]], timed: list[dict[str, Any]], out: Path) -> None:
    """Cycles by this model and time on a GPU, for tiles of which there are both."""
    figure, ((axis,),) = style.subplots(1, 1, width=5.5, height=3.6)
    for way, colour in zip(("forward", "backward"), style.COLOURS, strict=False):
        here = {tuple(row["tile"][:3]): row["cycles"] for row in results if row["pass"] == way and not row["registers"]}
        pairs = [
            (here[tuple(row["tile"][:3])], row["ms"] * 1e3)
            for row in timed
            if row["pass"] == way and tuple(row["tile"][:3]) in here and row["shape"] == list(results[0]["shape"])
        ]
        axis.scatter(*zip(*pairs, strict=True), s=12, color=colour, label=way)
    axis.set(xlabel="cycles a step, by the model", ylabel="µs on a GPU", xlim=(0, None), ylim=(0, None))
    axis.legend(frameon=False)
    style.save(figure, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="32x4096x192", help="BATCHxLENGTHxN")
    parser.add_argument("--pass", dest="passes", action="append", choices=["forward", "backward"])
    parser.add_argument("--tile", action="append", help="STEPSxCHANNELSxWARPSxTILES")
    parser.add_argument("--registers", type=int, action="append", help="of a thread, at most")
    parser.add_argument("--against", type=Path, help="what benchmarks/tiles.py has recorded at this shape")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/pictures/stalls.png"), help="for the picture of --against"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    batch, length, n = map(int, arguments.shape.split("x"))
    tiles = [tuple(map(int, tile.split("x"))) for tile in arguments.tile or TILES]
    results = []
    for row in rows(
        (batch, length, n), arguments.passes or ["forward", "backward"], tiles, arguments.registers or list(REGISTERS)
    ):
        results.append(row)
        limit = f"at most {row['registers']}" if row["registers"] else "any number of"
        print(f"{row['pass']} {row['tile']}, {limit} registers: {row['cycles']:.1f} cycles a step, ", end="")
        print(f"{row['instructions']:.1f} instructions, {row['used']} registers", flush=True)
    measure.record(arguments.json, shlex.join(["python", *sys.argv]), results)
    if arguments.against is not None:
        draw(results, json.loads(arguments.against.read_text())["results"], arguments.out)


if __name__ == "__main__":
    main()
