"""Predictions of a trained model for new inputs, and generation of text."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from linrnn.model import Model
from linrnn.streaming import Stream
from linrnn.tasks.base import Split
from linrnn.tasks.files import New
from linrnn.training.data import Examples
from linrnn.training.run import Run
from linrnn.util.errors import check_integer, wrong_type, wrong_value
from linrnn.util.types import check_device_is_here, checked

UNKNOWN = "<unk>"


class Predictions(NamedTuple):
    """The predictions for each example.

    Attributes:
        names: of the examples.
        values: (examples, [length or horizon,] columns): probabilities of classes or labels, or numbers in the units of
            the target.
        columns: names of classes, labels or target columns.
        classes: the most probable class or next symbol, (examples, [length]); None for kinds without classes.
        lengths: integers (examples,), the steps of each example, if there is a prediction for each step; otherwise
            None.
    """

    names: list[str]
    values: NDArray[np.float32]
    columns: tuple[str, ...]
    classes: NDArray[np.int64] | None
    lengths: NDArray[np.int64] | None


@checked
@torch.no_grad()
def predict(
    run: Run, new: New, *, weights: Literal["best", "last"] = "best", device: torch.device | str = "cpu"
) -> Predictions:
    """The predictions of a run's model, for inputs as `linrnn.tasks.files.read_new` returns them; for a language model
    the symbol that follows each text.

    Example:
        >>> run = linrnn.Run.open("runs/mine")
        >>> predict(run, linrnn.tasks.files.read_new("new.npz", run.description)).values
    """
    check_device_is_here(device)
    task, device = run.description, torch.device(device)
    model, objective = run.model(weights).to(device), run.objective(device)
    split = Split(new.inputs, new.lengths, np.zeros(len(new.inputs), dtype=np.int64))
    examples, size = Examples(task, split, device), run.recipe.training.batch_size
    parts = []
    for start in range(0, len(examples), size):
        indices = torch.arange(start, min(start + size, len(examples)), device=device)
        inputs, lengths, _ = examples(indices)
        outputs, anchors = model(inputs, lengths=lengths), examples.anchors(indices)
        if task.kind == "language":  # what follows the text
            ends = -1 if lengths is None else lengths - 1
            outputs = outputs[torch.arange(len(outputs), device=device), ends]
        said = objective.predictions(outputs)
        parts.append((said if anchors is None else said.double() + anchors).float().cpu())
    values = torch.cat(parts).numpy()
    several = task.numeric_targets or task.kind == "multi-label"
    steps = None
    if task.kind == "per-step":
        steps = np.full(len(values), values.shape[1]) if new.lengths is None else np.asarray(new.lengths)
    return Predictions(new.names, values, names_of(run), None if several else values.argmax(-1), steps)


def names_of(run: Run) -> tuple[str, ...]:
    """The names of classes, symbols, labels or target columns; numbers if there are no names."""
    task = run.description
    if task.kind == "language" and task.vocabulary is not None:
        return task.vocabulary
    return task.labels or tuple(str(i) for i in range(task.outputs))


@checked
def generate(
    model: Model, vocabulary: Sequence[str], prompt: str, length: int, *, seed: int = 0, temperature: float = 1.0
) -> Iterator[str]:
    """Symbols that continue a text, drawn one by one from the model's probabilities; the same for the same seed.

    Args:
        model: a language model in eval mode.
        vocabulary: its symbols.
        prompt: the text to continue: characters, or symbols separated by spaces if symbols are longer.
        length: the number of symbols to draw.
        seed: of the draws.
        temperature: 1 draws from the model's probabilities; lower values prefer probable symbols; 0 takes the most
            probable symbol.
    """
    if not 0 <= temperature < float("inf"):
        raise wrong_value("temperature", "a number not below 0", temperature)
    check_integer("length", length, 0)
    check_integer("seed", seed, 0)
    if not all(isinstance(symbol, str) for symbol in vocabulary):
        raise wrong_type("vocabulary", "texts", repr(vocabulary)[:80])
    if model.config.vocabulary is None or not len(vocabulary) == model.config.vocabulary == model.config.classes:
        expected = f"the {model.config.classes:,} symbols of the model's language"
        raise wrong_value("vocabulary", expected, f"{len(vocabulary):,}")
    return _drawn(model, vocabulary, symbols_of(prompt, vocabulary), length, seed, float(temperature))


def _drawn(
    model: Model, vocabulary: Sequence[str], prompt: list[int], length: int, seed: int, temperature: float
) -> Iterator[str]:
    stream, device = Stream(model), next(model.parameters()).device
    drawn = torch.Generator().manual_seed(seed)
    barred = [i for i, symbol in enumerate(vocabulary) if symbol == UNKNOWN]
    logits: Any = None
    for symbol in prompt:
        logits = stream.step(torch.tensor([symbol], device=device))
    for _ in range(length):
        scores = logits[0].double().cpu()
        scores[barred] = -torch.inf
        if temperature == 0:
            symbol = int(scores.argmax())
        else:
            scores -= scores.max()  # at temperatures close to 0 the quotient of the largest is finite
            symbol = int(torch.multinomial((scores / temperature).softmax(-1), 1, generator=drawn))
        yield vocabulary[symbol]
        logits = stream.step(torch.tensor([symbol], device=device))


def begin(vocabulary: Sequence[str]) -> str:
    """A prompt for a text without one: a new line, a space, or the first symbol."""
    return next((symbol for symbol in ("\n", " ") if symbol in vocabulary), "") or next(
        symbol for symbol in vocabulary if symbol != UNKNOWN
    )


def known_part(prompt: str, vocabulary: Sequence[str]) -> tuple[str, list[str]]:
    """A prompt without the symbols that the training data does not have, and these symbols."""
    between = separator(vocabulary)
    symbols = list(prompt.replace("\r\n", "\n")) if between == "" else prompt.split()
    absent = [symbol for symbol in symbols if symbol not in vocabulary or symbol == UNKNOWN]
    return between.join(symbol for symbol in symbols if symbol not in absent), list(dict.fromkeys(absent))


def separator(vocabulary: Sequence[str]) -> str:
    """The separator of symbols: empty for characters."""
    return "" if all(len(symbol) == 1 for symbol in vocabulary if symbol != UNKNOWN) else " "


def symbols_of(prompt: str, vocabulary: Sequence[str]) -> list[int]:
    """The ids of the symbols of a prompt, at least one; an unknown symbol is an error."""
    ids = {symbol: i for i, symbol in enumerate(vocabulary)}
    symbols = list(prompt) if separator(vocabulary) == "" else prompt.split()
    if not symbols:
        raise wrong_value("prompt", "at least one symbol to begin with", "none")
    for symbol in symbols:
        if symbol not in ids or symbol == UNKNOWN:
            raise wrong_value("prompt", "symbols of the training data", repr(symbol))
    return [ids[symbol] for symbol in symbols]
