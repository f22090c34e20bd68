"""Evaluation by length, on a CPU."""

import numpy as np
import pytest
import torch
from torch import Tensor

from linrnn import Model, ModelConfig, objectives
from linrnn.tasks.base import Split, Task
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate


@pytest.mark.parametrize("batch_size", [1, 8, 50])
def test_short_sequences_are_evaluated_without_padding(batch_size: int) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 41, 50)
    split = Split(rng.integers(0, 5, (50, 40), dtype=np.uint8), lengths, rng.integers(0, 3, 50))
    words = tuple("abcde")
    task = Task(name="mine", note="", train=split, validation=split, test=split, classes=3, vocabulary=words)
    model = Model(ModelConfig(channels=None, vocabulary=5, classes=3, d_model=4, d_state=4, depth=1)).eval()
    seen: list[tuple[int, int]] = []
    told: list[tuple[int, int]] = []

    def predict(inputs: Tensor, lengths: Tensor | None) -> Tensor:
        assert lengths is not None
        assert inputs.shape[1] == max(int(lengths.max()), 1)
        seen.append((len(inputs), inputs.shape[1]))
        return model(inputs, lengths=lengths)  # type: ignore[no-any-return]

    objective = objectives.of(task)
    examples = Examples(task, split, torch.device("cpu"))
    values = evaluate(predict, model, examples, objective, batch_size, lambda *done: told.append(done))
    with torch.no_grad():
        outputs = model(torch.from_numpy(split.inputs).int(), lengths=torch.from_numpy(lengths))
    targets = torch.from_numpy(split.targets)
    assert values["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(outputs, targets)), rel=1e-5)
    assert values["accuracy"] == pytest.approx(float((outputs.argmax(1) == targets).float().mean()))
    assert [steps for _, steps in seen][:-1] == sorted(steps for _, steps in seen[:-1])
    assert told[-1] == (50, 50)
