"""Batch norm over real steps against PyTorch's over the same steps."""

import pytest
import torch
from torch import nn

import linrnn
from linrnn.norm import BatchNorm
from tests.helpers import gradients, relative_error


@pytest.mark.parametrize("lengths", [[9, 0, 4, 1], [9, 9, 9, 9], [0, 0, 2, 0]], ids=str)
def test_masked_batch_norm_sees_the_real_steps_only(lengths: list[int]) -> None:
    real = torch.arange(9) < torch.tensor(lengths).unsqueeze(1)
    x = (3 + 2 * torch.randn(4, 9, 6, dtype=torch.float64)).requires_grad_()
    ours, theirs = BatchNorm(6).double(), nn.BatchNorm1d(6).double()
    with torch.no_grad():
        for parameter, twin in zip(ours.parameters(), theirs.parameters(), strict=True):
            twin.copy_(parameter.copy_(torch.randn(6)))
    weights = torch.randn(4, 9, 6, dtype=torch.float64)
    for _ in range(2):
        y, expected = ours(x, real), theirs(x[real])
        assert relative_error(y[real], expected) < 1e-12
        came = gradients(ours, (y[real] * weights[real]).sum(), x)
        wanted = gradients(theirs, (expected * weights[real]).sum(), x)
        assert all(relative_error(came[name], wanted[name]) < 1e-9 for name in wanted)
        for name, buffer in theirs.named_buffers():
            assert relative_error(ours.get_buffer(name), buffer) < 1e-12, name
    assert relative_error(ours.eval()(x, real)[real], theirs.eval()(x[real])) < 1e-12


def test_a_batch_of_padding_alone_leaves_the_statistics() -> None:
    norm = BatchNorm(3)
    norm(torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool))
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    assert norm(torch.randn(2, 5, 3), torch.zeros(2, 5, dtype=torch.bool)).isfinite().all()
    assert torch.equal(norm.get_buffer("running_mean"), before["running_mean"])
    assert torch.equal(norm.get_buffer("running_var"), before["running_var"])


def test_a_norm_of_another_kind_streams() -> None:
    """By the model's own step: its scale and shift may not be all that it does."""

    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
            return 2 * x

    model = linrnn.Model(linrnn.ModelConfig(channels=2, classes=3, d_model=8, d_state=4, depth=2)).eval()
    for block in model.blocks:
        block.norm = Doubled()  # type: ignore[assignment]
    stream, x = linrnn.Stream(model, 2), torch.randn(2, 5, 2)
    for step in x.unbind(1):
        output = stream.step(step)
    assert relative_error(output, model(x)) < 1e-5
