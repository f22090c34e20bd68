"""Which recurrent cores solve the built-in task: each trains by the same recipe, and all are drawn side by side.

    python benchmarks/cores.py [--core lru --core gru ...] [--seed 0] [--runs runs/cores]
                               [--json results/recall/cores.json] [--picture docs/pictures/cores-recall.png]

A core is a name that `linrnn train --core` takes. Runs that have ended are kept and not done again; a run whose loss is
not finite any more counts up to there. With --collect nothing is trained: runs count as far as they are.
"""

import argparse
from pathlib import Path
from typing import Any

import measure

import linrnn
from linrnn import training
from linrnn.bench import cores
from linrnn.paper import presets
from linrnn.training import Run
from linrnn.training.overrides import override
from linrnn.util import style

TASK, CHANCE, SOLVED = "recall", 1 / 3, 0.95
PANELS = {
    "Dense RNNs and gated ones": ("rnn-relu", "rnn-tanh", "rnn-linear", "gru", "lstm"),
    "The diagonal ladder": ("diag-real-imag", "diag-exp", "diag-stable-exp", "diag-ring"),
    "Deep state-space models": ("s4d", "s5", "s4", "dlr"),
}
LOOKS = [  # told apart without colours too
    (style.ORANGE, "-", "o"), (style.GREEN, "--", "s"), (style.RED, "-.", "^"), (style.PURPLE, ":", "D"),
    (style.BLACK, (0, (5, 1)), "v"),
]  # fmt: skip


def trained(name: str, seed: int, folder: Path, device: str | None, collect: bool) -> tuple[Run, str | None]:
    """The run of a core, done now if it was not before, and why it stopped early where it did."""
    if collect:
        run = Run.open(folder)
        ended = run.summary is not None
        return run, None if ended else f"stopped at step {max((r['step'] for r in run.metrics()), default=0)}"
    recipe = override(presets.apply(linrnn.recipes.get(TASK), name), [f"training.seed={seed}"])
    done = (folder / "config.json").is_file()
    if done and Run.open(folder).recipe != recipe:
        raise ValueError(f"--runs: expected a folder for runs of this recipe, got {folder}, which holds another's")
    settings = training.Settings(device=device, quiet=True)
    try:
        run = training.resume(folder, settings) if done else training.train(recipe, folder, settings)
    except training.NonFiniteLossError as error:
        return Run.open(folder), str(error).partition(", so")[0]
    return run, None


def result(name: str, run: Run, stopped: str | None) -> dict[str, Any]:
    model, summary, records = run.recipe.model, run.summary or {}, run.metrics()
    test = summary["test"]["best"] if summary else None
    return {
        "core": name,
        "name": model.core,
        "options": dict(model.options),
        "seed": run.recipe.training.seed,
        "solved": test is not None and test >= SOLVED,
        "test_accuracy": test,
        "stopped": stopped,
        "parameters": summary.get("parameters"),
        "device": summary.get("device"),
        "steps": [record["step"] for record in records],
        "validation_accuracy": [record["accuracy"] for record in records],
        "loss": [record["loss"] for record in records],
    }


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Validation accuracy over steps: a panel for each family, and the LRU in all of them."""
    found = {row["core"]: row for row in results}
    panels = {title: [name for name in names if name in found] for title, names in PANELS.items()}
    panels = {title: names for title, names in panels.items() if names}
    figure, axes = style.subplots(1, len(panels), width=4.2, height=3.9, sharey=True)
    for ax, (title, names) in zip(axes[0], panels.items(), strict=True):
        ax.axhline(100 * CHANCE, color="0.5", linewidth=0.8)
        ax.text(300, 100 * CHANCE - 1, "chance", ha="center", va="top", color="0.4", fontsize="small")
        looks = [(style.BLUE, "-", "*"), *LOOKS]
        for name, (colour, line, marker) in zip(["lru", *names] if "lru" in found else names, looks, strict=False):
            row, width = found[name], 2.6 if name == "lru" else 1.6
            curve = [100 * accuracy for accuracy in row["validation_accuracy"]]
            label = name + (" (stopped)" if row["stopped"] else "")
            ax.plot(row["steps"], curve, color=colour, ls=line, marker=marker, ms=4, lw=width, label=label)
        ax.set(title=title, xlabel="step", ylim=(18, 102))
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, frameon=False)
    axes[0, 0].set_ylabel("validation accuracy, %")
    style.save(figure, path)
    print(f"drawn in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", action="append", metavar="NAME", help="can be repeated; all if none is given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/cores"), help="where runs are kept")
    parser.add_argument("--device")
    parser.add_argument("--collect", action="store_true", help="take runs as they are, and train none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    results = []
    for name in arguments.core or cores.names():
        folder = arguments.runs / f"{name}-{arguments.seed}"
        run, stopped = trained(name, arguments.seed, folder, arguments.device, arguments.collect)
        results.append(result(name, run, stopped))
        test = results[-1]["test_accuracy"]
        print(f"{name}: {stopped or f'{test:.1%} on test'}", flush=True)
    command = " ".join(
        ["benchmarks/cores.py", *(f"--core {name}" for name in arguments.core or ()), f"--seed {arguments.seed}"]
    )
    measure.record(arguments.json, command, results)
    if arguments.picture is not None:
        draw(results, arguments.picture)


if __name__ == "__main__":
    main()
