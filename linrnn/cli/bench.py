"""The command `linrnn bench`: speed, as ratios measured in one run."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.markup import escape
from rich.table import Table

from linrnn import training
from linrnn.bench import baselines, measure
from linrnn.bench import cores as cores_of
from linrnn.bench import layer as layers
from linrnn.bench import length as lengths_of
from linrnn.bench import scan as scans
from linrnn.bench import start as starts
from linrnn.bench import stream as streams
from linrnn.bench import train as steps
from linrnn.bench import varying as varying_scans
from linrnn.bench.measure import Row
from linrnn.cli import bench_tables as tables
from linrnn.cli.console import log, out
from linrnn.cli.help import App
from linrnn.paper import presets
from linrnn.util.errors import unknown, wrong_value

app = App(help="Speed: the scan, training steps, cores, streaming and long sequences.")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Device = Annotated[str | None, typer.Option(help="cpu or cuda.  [default: the GPU, if there is one]")]
Json = Annotated[
    Path | None,
    typer.Option("--json", help="Keep all numbers, with machine, versions and commit.", metavar="FILE"),
]
Picture = Annotated[Path | None, typer.Option("--out", help="Draw the results.", metavar="FILE")]
Threads = Annotated[int | None, typer.Option(min=1, help="On a CPU.  [default: PyTorch's]")]
Dtype = Annotated[
    Literal["float32", "bfloat16"] | None, typer.Option(help="One dtype.  [default: both on a GPU, float32 on a CPU]")
]


@app.command()
def scan(
    sweep: Annotated[bool, typer.Option("--sweep", help="Many shapes, from one long sequence to many short.")] = False,
    varying: Annotated[bool, typer.Option("--varying", help="With a λ for each step, complex and real.")] = False,
    dtype: Dtype = None,
    with_baselines: Annotated[
        bool,
        typer.Option("--baselines/--no-baselines", help="Scans of other libraries, if installed."),
    ] = True,
    device: Device = None,
    threads: Threads = None,
    json_file: Json = None,
    picture: Picture = None,
) -> None:
    """The recurrence x = λ·x + u alone, forward and backward, compared with a copy of the same bytes.

    Only useful bytes are counted: forward reads u and writes the states, backward reads the gradient and the states
    and writes a gradient; → scans from the first step, ← from the last. The copy moves the same number of bytes. On a
    GPU: TB/s and the share of the copy's bandwidth, replayed from a CUDA graph. On a CPU: the time over the copy's.
    Baselines, not in a sweep: the associative_scan of PyTorch and of JAX, and accelerated-scan, in complex64 (PyTorch
    on a GPU: float32 planes, compiled), compared with our float32 planes: their time over ours, forward / forward and
    backward. JAX compiles for about a minute. With --varying λ differs at each step: forward also reads λ, backward
    also reads λ and writes the gradient of λ; all baselines get a λ for each step.

    **Examples**

    - `linrnn bench scan --out scan.png`: the shapes of the paper's tasks
    - `linrnn bench scan --varying --json results/bench/scan-varying.json`
    - `linrnn bench scan --sweep --dtype bfloat16 --json results/bench/sweep.json`
    - `linrnn bench scan --device cpu --threads 2`
    """
    where = _device(device, threads)
    gpu = where.type == "cuda"
    shapes = scans.SHAPES if gpu else scans.CPU_SHAPES
    if sweep:
        shapes = {tables.times(shape): shape for shape in scans.sweep(*(() if gpu else (1 << 20, 1 << 23)))}
    chosen = _dtypes(dtype, where)
    if varying:
        _varying_scan(shapes, chosen, where, with_baselines and not sweep, json_file, picture)
        return
    results: list[Row] = []
    if gpu:
        log.print("compiling kernels", style="dim")
        scans.compile_ahead(shapes.values(), chosen, where)
    for rows in scans.rows(shapes, chosen, where):
        results += rows
        _keep(json_file, results, rows[0])
    missing: dict[str, str] = {}
    others: list[Row] = []
    if with_baselines and not sweep:
        others, missing = scans.baseline_rows(shapes, results, where)
    goal = scans.SWEEP_GOAL if sweep else scans.GOAL
    out.print(tables.scan_table(results, others, goal if gpu else None))
    _say_missing(missing)
    if gpu:
        shares = [row["share"] for row in results]
        reached = sum(share >= goal for share in shares)
        out.print(f"{reached} of {len(shares)} at {goal:.0%} of the copy or above; the lowest at {min(shares):.0%}")
    _finish(json_file, [*results, *others], picture, scans.picture)


@app.command()
def train(
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="Can be repeated.  [default: the paper's six; recall on a CPU]", metavar="NAME"),
    ] = None,
    rnn: Annotated[bool, typer.Option("--rnn", help="PyTorch's RNN, GRU and LSTM in the same blocks (slow).")] = False,
    jax: Annotated[bool, typer.Option("--jax", help="The same model in plain JAX (compiles for minutes).")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="The time of a step by kernel.")] = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="To measure each for.")] = 2.0,
    device: Device = None,
    threads: Threads = None,
    json_file: Json = None,
    picture: Picture = None,
) -> None:
    """Steps a second of whole training steps at the paper's sizes, on random data.

    A step is forward, backward and optimizer; on a GPU in bfloat16, compiled and captured in one CUDA graph. Further
    columns: the goal (five times minimal-LRU on an NVIDIA H200); the time of the matrix multiplications of all blocks
    alone (B, C and the mixing, forward and backward), and its share of the step; and the baselines, with our speed over
    theirs: PyTorch's recurrent layers (cuDNN, bfloat16, not captured; for that see `linrnn bench cores`) and plain JAX
    (float32 parameters, associative_scan). Bidirectional recipes are also measured in one direction. Tokens fill a
    quarter to all of the length, at random, and batches are packed as in training; these recipes are also measured at
    full length, which is what JAX computes.

    **Examples**

    - `linrnn bench train --out train.png`
    - `linrnn bench train --recipe scifar --recipe listops --jax --rnn --json results/bench/train.json`
    - `linrnn bench train --recipe pathx --profile`
    """
    where = _device(device, threads)
    gpu = where.type == "cuda"
    if not gpu:
        log.print("[yellow]on a CPU steps are neither compiled nor captured: this is slow")
    chosen = steps.cases(recipe or (steps.PAPER if gpu else ["recall"]))
    measured = (steps.row(case, where, rnn=rnn, profile=profile, seconds=seconds) for case in chosen)
    results = _collect(measured, json_file)
    missing = {}
    if jax:
        try:
            rows = {row["name"]: row for row in results}
            own = [case for case in chosen if not case.without_padding]  # it computes padding like any step
            for case, speed in zip(own, steps.jax_speeds(own, where, seconds), strict=True):
                row = rows[case.name]
                row["JAX"] = speed
                _keep(json_file, results, {"name": f"{row['name']}, JAX"})
        except baselines.Unavailable as reason:
            missing["JAX"] = str(reason)
    out.print(tables.train_table(results))
    for row in results if profile else []:
        out.print(tables.profile_table(row))
    _say_missing(missing)
    _finish(json_file, results, picture, steps.picture)


@app.command()
def start(
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="Can be repeated.  [default: the paper's six; recall on a CPU]", metavar="NAME"),
    ] = None,
    device: Device = None,
    json_file: Json = None,
) -> None:
    """Seconds from the start of a process to its first training step: with empty caches, then in a second process.

    A new process imports linrnn, puts random data on the device, compiles and captures the step, and runs it once.

    **Example**: `linrnn bench start --recipe text --json results/bench/start.json`
    """
    where = _device(device, None)
    chosen = recipe or (steps.PAPER if where.type == "cuda" else ["recall"])
    for name in chosen:
        if name not in steps.SIZES:
            raise unknown("--recipe", name, steps.SIZES)
    results = _collect((row for name in chosen for row in starts.rows(name, where.type)), json_file)
    out.print(tables.start_table(results))
    _finish(json_file, results)


@app.command()
def cores(
    recipe: Annotated[
        list[str] | None, typer.Option(help="Can be repeated.  [default: scifar; recall on a CPU]", metavar="NAME")
    ] = None,
    core: Annotated[
        list[str] | None,
        typer.Option(help=f"Can be repeated: {', '.join(presets.names())}.  [default: all]", metavar="NAME"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="To measure each for.")] = 2.0,
    device: Device = None,
    threads: Threads = None,
    json_file: Json = None,
) -> None:
    """Every recurrent core in the same model: training steps a second and memory, and the ratios to the LRU.

    A step is what `linrnn bench train` measures: forward, backward and optimizer on random data at the sizes of a
    recipe; on a GPU in bfloat16, compiled and captured in one CUDA graph. The table names cores that fail or run out of
    memory.

    **Examples**

    - `linrnn bench cores --recipe scifar --recipe text --json results/bench/cores.json`
    - `linrnn bench cores --core lru --core gru --core rnn-tanh`
    """
    where = _device(device, threads)
    gpu = where.type == "cuda"
    for name in core or ():
        if name not in presets.names():
            raise unknown("--core", name, presets.names())
    cases = (steps.cases([chosen])[0] for chosen in recipe or ["scifar" if gpu else "recall"])
    chosen = core or cores_of.names()
    results = _collect((row for case in cases for row in cores_of.rows(case, chosen, where, seconds)), json_file)
    out.print(tables.cores_table(results, gpu))
    _finish(json_file, results)


@app.command()
def stream(
    rnn: Annotated[
        bool, typer.Option("--rnn", help="On a GPU also PyTorch's RNN, GRU and LSTM in the same blocks.")
    ] = False,
    device: Device = None,
    dtype: Dtype = None,
    json_file: Json = None,
) -> None:
    """One step at a time, in constant memory.

    On a GPU: a step of a linrnn.Stream of 6 blocks (H 512, N 384), a CUDA graph called from Python, at batch 1 and
    1,024; the time of its matrix multiplications alone; the time to read its weights and states once, at the bandwidth
    of a large copy; and with --rnn the same blocks with PyTorch's layers, streamed in the same way, and their time over
    ours. On a CPU: steps a second on one thread, batch 1, float32, H 128, N 256. The models have 6 blocks and the same
    encoder, mixing and head; their cores are the LRU (N complex states) or PyTorch's layers with N hidden features and
    a map back to H. Then single layers with H 256, 128, 64 and 32: PyTorch's without this map, and the LRU in five
    lines of NumPy and, if installed, in ONNX Runtime. The fastest of 300 interleaved rounds of 20 steps counts.

    **Examples**

    - `linrnn bench stream --rnn`
    - `linrnn bench stream --device cpu --json results/bench/stream-cpu.json`
    """
    where = _device(device, None)
    if where.type == "cuda":
        results = _collect(streams.gpu_rows((1, 1024), _dtypes(dtype, where), where, rnn=rnn), json_file)
        out.print(tables.gpu_stream_table(results))
    else:
        if dtype == "bfloat16":
            raise wrong_value("--dtype", "float32 on a CPU", dtype)
        results = streams.cpu_rows()
        out.print(tables.cpu_stream_table(results))
    _finish(json_file, results)


@app.command()
def length(
    lengths: Annotated[
        str | None, typer.Option(help="Steps.  [default: 16384 to 1048576; on a CPU less]", metavar="L,L,...")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    json_file: Json = None,
    picture: Picture = None,
) -> None:
    """Training on one sequence (6 blocks, H 128, N 256, batch 1): time for each token and peak memory, by length.

    **Examples**

    - `linrnn bench length --out length.png`
    - `linrnn bench length --lengths 16384,1048576`
    """
    where = _device(device, threads)
    if lengths is None:
        chosen: Sequence[int] = lengths_of.LENGTHS if where.type == "cuda" else lengths_of.CPU_LENGTHS
    else:
        chosen = _numbers("--lengths", lengths)
    results = _collect(lengths_of.rows(chosen, where), json_file)
    table = Table("length", "ms a step", "ns a token", "to the shortest", "peak memory")
    for row in results:
        peak = "–" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.2f} GB"
        ratio = tables.marked(f"{row['ratio']:.2f} ×", row["ratio"] <= lengths_of.GOAL)
        table.add_row(f"{row['length']:,}", f"{row['ms']:.2f}", f"{row['ns_per_token']:.1f}", ratio, peak)
    out.print(table)
    _finish(json_file, results, picture, lengths_of.picture)


@app.command()
def layer(threads: Threads = None, json_file: Json = None) -> None:
    """A whole LRU layer on the CPU, forward and backward: 8 × 1,024 steps, H 512, N 384, float32.

    Compared with its two matrix products alone, and with PyTorch's layers of the same sizes. PyTorch's layers return N
    features and the LRU returns H, so nn.RNN with a map back to H is measured too.

    **Example**: `linrnn bench layer --threads 2`
    """
    _device("cpu", threads)
    results = layers.rows()
    table = Table("against", "LRU", "it", "ratio", "goal")
    for row in results:
        ratio = tables.marked(f"{row['ratio']:.2f}", row["ratio"] <= row["goal"])
        table.add_row(row["name"], f"{row['ms']:.1f} ms", f"{row['against_ms']:.1f} ms", ratio, f"≤ {row['goal']:g}")
    out.print(table)
    _finish(json_file, results)


def _varying_scan(
    shapes: Mapping[str, scans.Shape],
    dtypes: list[torch.dtype],
    device: torch.device,
    with_baselines: bool,
    json_file: Path | None,
    picture: Path | None,
) -> None:
    if picture is not None:
        raise wrong_value("--out", "no picture with --varying", picture)
    results: list[Row] = []
    for rows in varying_scans.rows(shapes, dtypes, device):
        results += rows
        _keep(json_file, results, rows[0])
    others, missing = varying_scans.baseline_rows(shapes, results, device) if with_baselines else ([], {})
    out.print(tables.varying_table(results, others, varying_scans.GOAL))
    _say_missing(missing)
    _finish(json_file, [*results, *others])


def _numbers(option: str, words: str) -> list[int]:
    numbers = [int(word) for word in words.split(",") if word.strip().isdecimal()]
    if len(numbers) != words.count(",") + 1 or min(numbers) < 1:
        raise wrong_value(option, "numbers of at least 1 with commas between", words)
    return numbers


def _device(wanted: str | None, threads: int | None) -> torch.device:
    """The device, with the seed and the number of threads set."""
    torch.manual_seed(0)
    if threads is not None:
        torch.set_num_threads(threads)
    return training.Processes().device(wanted)


def _dtypes(wanted: str | None, device: torch.device) -> list[torch.dtype]:
    if wanted is not None:
        return [DTYPES[wanted]]
    return list(DTYPES.values()) if device.type == "cuda" else [torch.float32]


def _command() -> str:
    return shlex.join(["linrnn", *sys.argv[1:]])


def _collect(rows: Iterable[Row], path: Path | None) -> list[Row]:
    """All rows; each is written as soon as its measurement ends."""
    results: list[Row] = []
    for row in rows:
        results.append(row)
        _keep(path, results, row)
    return results


def _keep(path: Path | None, results: list[Row], last: Row) -> None:
    """Write the results so far, so that none is lost if a long run is stopped, and print the name of the last."""
    measure.write(path, _command(), results)
    log.print(f"[dim]measured {escape(' '.join(str(last[key]) for key in ('name', 'dtype') if key in last))}")


def _finish(json_file: Path | None, results: list[Row], picture: Path | None = None, draw: Any = None) -> None:
    """Write the record, and the picture if requested."""
    measure.write(json_file, _command(), results)
    if picture is not None:
        draw([row for row in results if "baseline" not in row], picture)
    for path, done in ((json_file, "recorded"), (picture, "drawn")):
        if path is not None:
            out.print(f"{done} in {escape(str(path))}", soft_wrap=True)


def _say_missing(missing: dict[str, str]) -> None:
    for reason in missing.values():
        out.print(f"[dim]{escape(reason)}", soft_wrap=True)
