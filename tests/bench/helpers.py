"""A tiny case to train, and one thread: with more, tiny operations wait for each other."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from linrnn.bench import train
from linrnn.bench.train import Case, Sizes
from linrnn.recipes import ModelSettings, Recipe, Training


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny(depth: int = 1, documents: Any = 1, symbols: int | None = 5, **model: Any) -> Case:
    sizes = Sizes(12, None if symbols else 2, symbols, 3, documents)
    settings = ModelSettings(d_model=6, d_state=4, depth=depth, **model)
    plan = Training(steps=10, batch_size=4, learning_rate=0.01, recurrent_factor=0.5, weight_decay=0.05, eval_every=10)
    recipe = Recipe(task="tiny", model=settings, training=plan)
    return Case("tiny", recipe, train.random_task("tiny", sizes, 4))
