"""The tables that `linrnn bench` prints."""

from collections.abc import Iterable
from typing import Any

from rich.markup import escape
from rich.table import Table

from linrnn.bench import cores as cores_of
from linrnn.bench import scan as scans
from linrnn.bench import stream as streams
from linrnn.bench import train as steps
from linrnn.bench.measure import Row


def scan_table(results: list[Row], others: list[Row], share: float | None) -> Table:
    """On a GPU with the share of the copy's bandwidth that is the goal; on a CPU that is None."""
    names = list(dict.fromkeys(row["baseline"] for row in others))
    unit, factor = ("GB/s", 1e3) if share is None else ("TB/s", 1.0)
    passes = [f"{name} {arrow}" for name in scans.TENSORS for arrow in "→←"]
    table = Table("batch × length × N", "type", f"copy, {unit}", *passes, *names)
    for i in range(0, len(results), 4):
        rows = results[i : i + 4]
        first = rows[0]
        cells = [scan_cell(row, share) for row in rows]
        of_others = {row["baseline"]: row for row in others if row["shape"] == first["shape"]}
        ratios = ["" if first["dtype"] != "float32" else longer(of_others.get(name)) for name in names]
        label = times(first["shape"])
        label = label if first["name"] == label else f"{first['name']} ({label})"
        table.add_row(label, first["dtype"], f"{factor * first['copy_TB/s']:.3g}", *cells, *ratios)
    return table


def varying_table(results: list[Row], others: list[Row], goal: float) -> Table:
    """The share of a copy's bandwidth, and the ratios of the times of other scans to ours."""
    names = list(dict.fromkeys(row["baseline"] for row in others))
    passes = [f"{name} {arrow}" for name in scans.TENSORS for arrow in "→←"]
    table = Table("batch × length × N", "numbers", "copy, GB/s", *passes, *names)
    for i in range(0, len(results), 4):
        rows = results[i : i + 4]
        first = rows[0]
        shares = [marked(f"{row['share']:.0%}", row["share"] >= goal) for row in rows]
        same = [row for row in others if all(row[key] == first[key] for key in ("shape", "numbers"))]
        of_others = {row["baseline"]: row for row in same if first["dtype"] == "float32"}
        ratios = [longer(of_others.get(name)) for name in names]
        label = f"{first['name']} ({times(first['shape'])})"
        kind = f"{first['numbers']}, {first['dtype']}"
        table.add_row(label, kind, f"{1e3 * first['copy_TB/s']:.3g}", *shares, *ratios)
    return table


def scan_cell(row: Row, share: float | None) -> str:
    if share is None:
        return marked(f"{1 / row['share']:.2f} ×", 1 / row["share"] <= scans.CPU_GOAL)
    return marked(f"{row['TB/s']:.2f} ({row['share']:.0%})", row["share"] >= share)


def longer(row: Row | None) -> str:
    return "" if row is None else f"{row['forward_ratio']:.1f} × / {row['with_backward_ratio']:.1f} ×"


def train_table(results: list[Row]) -> Table:
    known = [*(f"nn.{kind}" for kind in steps.PYTORCH), "JAX"]
    baselines_named = [name for name in known if any(name in row for row in results)]
    table = Table("recipe", "batch × length, H, N", "steps/s", "goal", "products alone", *baselines_named)
    for row in results:
        size = f"{row['batch']} × {row['length']:,}, {row['H']}, {row['N']}"
        goal = "–" if row["goal"] is None else marked(f"{row['goal']} ({row['of_goal']:.0%})", row["of_goal"] >= 1)
        alone = f"{row['products_ms']:.2f} ms ({row['products_share']:.0%}), {row['products_TFLOP/s']:.3g} TFLOP/s"
        speeds = [speed(row.get(name), row["steps/s"]) for name in baselines_named]
        table.add_row(row["name"], size, f"{row['steps/s']:.1f}", goal, alone, *speeds)
    return table


def start_table(results: list[Row]) -> Table:
    parts = ("imports", "data and device", "compile and capture", "first step")
    table = Table("recipe", "caches", *parts, "all", "goal")
    for row in results:
        goal = "–" if row["goal"] is None else f"≤ {row['goal']} s"
        total = f"{row['all']:.1f} s"
        table.add_row(
            row["name"],
            row["caches"],
            *(f"{row[part]:.1f} s" for part in parts),
            total if row["goal"] is None else marked(total, row["all"] <= row["goal"]),
            goal,
        )
    return table


def cores_table(results: list[Row], gpu: bool) -> Table:
    table = Table("recipe", "core", "steps/s", "the LRU is faster", "peak memory", "to the LRU's")
    for row in results:
        label = f"{row['recipe']} ({row['batch']} × {row['length']:,}, H {row['H']}, N {row['N']})"
        if "error" in row:
            table.add_row(label, row["name"], f"[red]{escape(row['error'][:60])}", "–", "–", "–")
            continue
        faster, goal = row["lru_faster"], cores_of.GOALS.get(row["name"])
        ratio = "–" if faster is None else f"{faster:.2f} ×"
        if gpu and row["recipe"] == "scifar" and faster is not None and goal is not None:
            ratio = marked(f"{ratio} (≥ {goal})", faster >= goal)
        memory = "–" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.2f} GB"
        more = "–" if row["memory_ratio"] is None else f"{row['memory_ratio']:.2f} ×"
        table.add_row(label, row["name"], f"{row['steps/s']:.3g}", ratio, memory, more)
    return table


def speed(other: Any, ours: float) -> str:
    """The baseline's steps a second, and how many times faster linrnn is."""
    if other is None:
        return "–"
    if isinstance(other, dict):
        if "error" in other:
            return escape(other["error"][:40])
        other = other["steps_per_second"]
    return f"{other:.3g} ({ours / other:.1f} ×)"


def profile_table(row: Row) -> Table:
    profile = row["profile"]
    step = 1e6 / row["steps/s"]
    title = f"{row['name']}: a step of {step:,.0f} µs, busy for {profile['busy_us']:,.0f} µs"
    table = Table("kernel", "calls", "µs a step", "share", title=title)
    for kernel in profile["kernels"]:
        share = f"{kernel['us'] / max(profile['busy_us'], 1e-9):.1%}"
        table.add_row(escape(kernel["kernel"][:100]), f"{kernel['calls']:g}", f"{kernel['us']:,.1f}", share)
    return table


def gpu_stream_table(results: list[Row]) -> Table:
    baselines_named = [name for name in (f"nn.{kind}" for kind in steps.PYTORCH) if name in results[0]]
    table = Table("", "type", "µs a step", "products alone", "weights and states", "read in", "ratio", *baselines_named)
    for row in results:
        alone = row["batch"] == 1
        reached = row["us"] <= streams.GPU_GOAL_US if alone else row["ratio"] <= streams.GPU_GOAL_RATIO
        took, ratio = f"{row['us']:.1f}", f"{row['ratio']:.2f} ×"
        took, ratio = (marked(took, reached), ratio) if alone else (took, marked(ratio, reached))
        size = f"{row['bytes'] / 1e6:.1f} MB"
        others = [f"{row[name]:.0f} µs ({row[name] / row['us']:.1f} ×)" for name in baselines_named]
        table.add_row(row["name"], row["dtype"], took, f"{row['products_us']:.1f} µs", size,
                      f"{row['read_us']:.1f} µs", ratio, *others)  # fmt: skip
    return table


def cpu_stream_table(results: list[Row]) -> Table:
    table = Table("", "H, N", "steps/s", "the first is faster", "goal", title="batch 1")
    for row in results:
        speed = f"{row['steps/s']:,.0f}"
        goal = "" if row["goal"] is None else f"{row['goal']:,}"
        speed = speed if row["goal"] is None else marked(speed, row["steps/s"] >= row["goal"])
        ratio = "" if row["first_ratio"] == 1 else f"{row['first_ratio']:.2f} ×"
        table.add_row(row["name"], f"{row['H']}, {row['N']}", speed, ratio, goal)
    return table


def marked(text: str, reached: bool) -> str:
    """In green if the goal is reached, in red if not."""
    return f"[{'green' if reached else 'red'}]{text}[/]"


def times(shape: Iterable[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape)
