"""The graphs before the first block and after the last block: all work on features is in a graph, and its precision."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import linrnn
from linrnn.fast import Accelerated, ends
from linrnn.fast.blocks import Batch
from linrnn.fast.packing import pack
from linrnn.util.precision import full_precision
from tests.helpers import relative_error

BATCH, LENGTH, H = 4, 16, 6
LENGTHS = torch.tensor([16, 3, 9, 1])


class Eager(TorchDispatchMode):
    """The operations outside of the functions that are compiled, and the numbers in their results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        floats = isinstance(result, Tensor) and result.is_floating_point()
        self.found.append((str(func), result.numel() if floats else 0))
        return result


def hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as one graph: its operations are not counted."""

    def run(*arguments: Any) -> Any:
        with _disable_current_modes():
            return function(*arguments)

    return run


@pytest.mark.parametrize("last_norm", [False, True], ids=["", "last norm"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("case", ["whole", "padded", "packed", "documents", "numbers"])
def test_no_operation_over_all_steps_is_outside_of_the_graphs(case: str, bidirectional: bool, last_norm: bool) -> None:
    """Each would be a GPU kernel of its own that reads and writes (batch, length, H), and more in the gradient."""
    fields: dict[str, Any] = {"channels": 3} if case == "numbers" else {"vocabulary": 9}
    fields |= {"documents": 2} if case == "documents" else {}
    options = {"bidirectional": bidirectional}
    config = linrnn.ModelConfig(
        classes=4, d_model=H, d_state=5, depth=3, dropout=0.3, options=options, last_norm=last_norm, **fields
    )
    fast = Accelerated(linrnn.Model(config), compile=False, fuse=True, chunk=2)
    shape = (BATCH, 2, LENGTH) if case == "documents" else (BATCH, LENGTH)
    inputs = torch.randn(*shape, 3) if case == "numbers" else torch.randint(9, shape)
    lengths = None if case in ("whole", "numbers") else LENGTHS
    if case == "documents":
        lengths = LENGTHS.view(-1, 1).expand(-1, 2)
    more = {"packed_length": 56} if case == "packed" else {}
    with Eager() as visible:
        fast(inputs, lengths=lengths, **more)
    assert max(numbers for _, numbers in visible.found) >= LENGTH * H
    fast._begin, fast._block, fast._end = map(hidden, (fast._begin, fast._block, fast._end))
    with Eager() as eager:
        fast(inputs, lengths=lengths, **more)
    assert not [name for name, numbers in eager.found if numbers >= LENGTH * H]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside the compiler
@pytest.mark.parametrize(("packed", "documents"), [(False, 1), (True, 1), (False, 2)])
def test_means_and_the_head_are_exact_under_autocast(packed: bool, documents: Any) -> None:
    """Compiled, in float32 forward and backward: the means of long sequences differ too little for bfloat16."""
    torch.manual_seed(0)
    config = linrnn.ModelConfig(vocabulary=9, classes=4, d_model=64, d_state=5, depth=1, documents=documents)
    model, tokens = linrnn.Model(config), torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    exact = copy.deepcopy(model).double()
    if packed:
        row = pack(tokens, LENGTHS, 56)
        batch = Batch(row.valid, row.segment, row.segment[:, ::2], row.offsets // 2)
        x = torch.randn(1, 56, 64).bfloat16()
    else:
        batch = Batch(torch.arange(LENGTH) < LENGTHS.unsqueeze(1))
        x = torch.randn(BATCH, LENGTH, 64).bfloat16()
    truth = ends.end(exact, x.double(), batch, LENGTHS)
    end = torch.compile(ends.end, backend="aot_eager", fullgraph=True, dynamic=False)
    grad = torch.randn_like(truth)
    with torch.autocast("cpu", torch.bfloat16), full_precision(x.device):
        came = end(model, x.requires_grad_(), batch, LENGTHS)
    came.backward(grad.float())
    truth.backward(grad)
    assert came.dtype == torch.float32
    assert relative_error(came.double(), truth) < 1e-5
    for parameter, wanted in zip(model.head.parameters(), exact.head.parameters(), strict=True):
        assert parameter.grad is not None
        assert wanted.grad is not None
        assert relative_error(parameter.grad.double(), wanted.grad) < 1e-5
