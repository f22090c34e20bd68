"""The norms before a core: layer norm, and batch norm over valid steps, optionally over several processes."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

Norm = Literal["batch", "layer"]


class Moments(NamedTuple):
    """Sums over the valid steps of x, in float32 or better.

    The sums are of x - near, where near is one of the steps. Sums of x itself would lose a small variance next to the
    square of a large mean. Among n steps none is more than √n standard deviations from the mean, so the relative error
    of the variance is at most n rounding errors.
    """

    near: Tensor  # the first step of x, (H,), without gradient
    sums: Tensor  # the sums of x - near and of its square, (2, H)
    steps: Tensor  # the number of valid steps, int64


def moments(x: Tensor, valid: Tensor | None) -> Moments:
    """The moments of x (batch, length, H) over the steps where `valid` (bool, (batch, length)) is true; None: all."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    near = x.detach().flatten(0, 1)[:1].sum(0)
    distance = x - near
    if valid is not None:
        distance = torch.where(valid.unsqueeze(-1), distance, 0)
    sums = torch.stack([distance.sum((0, 1)), distance.square().sum((0, 1))])
    return Moments(near, sums, valid_steps(x, valid))


def valid_steps(x: Tensor, valid: Tensor | None) -> Tensor:
    """The number of valid steps of x (batch, length, H), int64, as in `moments`."""
    return x.new_full((), x.shape[0] * x.shape[1], dtype=torch.int64) if valid is None else valid.sum()


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (batch, length, H) or (batch, H). Statistics are over valid steps, of all processes of a group."""

    group: Any = None

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        if not self.training or (valid is None and self.group is None):
            return super().forward(x.flatten(0, -2)).view(x.shape)
        if valid is not None:
            x = x.masked_fill(~valid.unsqueeze(-1), 0)  # padding may hold NaN
        scale, shift = self.scale_and_shift(moments(x, valid))
        return (x * scale + shift).to(x.dtype)

    def scale_and_shift(self, given: Moments | None = None) -> tuple[Tensor, Tensor]:
        """The norm as scale ⊙ x + shift, (H,) each.

        In training they follow from `given`, the moments of x, and the running statistics are updated. In evaluation
        they follow from the running statistics, and `given` is not used.
        """
        assert self.running_mean is not None
        assert self.running_var is not None
        if not self.training:
            scale = self.weight * torch.rsqrt(self.running_var + self.eps)
            return scale, self.bias - self.running_mean * scale
        assert given is not None
        near, (total, square), steps = given
        count = steps.clamp(min=1)
        mean = total / count
        var = (square / count - mean.square()).clamp(min=0)
        mean, var, steps = self._over_group(near + mean, var, steps)
        count = steps.clamp(min=1)
        self._update(mean.detach(), var.detach() * count / (count - 1).clamp(min=1), steps > 0)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return scale, self.bias - mean * scale

    def _over_group(self, mean: Tensor, var: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mean, variance and number of steps over all processes, from the values of this process.

        The `near` of the processes differ, so that their sums cannot be added.
        """
        if self.group is None:
            return mean, var, steps
        total = self._sum(steps)
        count = total.clamp(min=1)
        common = self._sum(mean * steps) / count
        return common, self._sum((var + (mean - common).square()) * steps) / count, total

    @torch.no_grad()
    def _update(self, mean: Tensor, var: Tensor, found: Tensor) -> None:
        """Update the running statistics, except where a batch is padding only (`found` is false)."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        momentum = self.momentum * found.to(self.running_mean.dtype)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(var.to(self.running_var.dtype), momentum)

    def _sum(self, x: Tensor) -> Tensor:
        """The sum over all processes; its gradient is the sum of their gradients."""
        total: Tensor = _SumOver.apply(x, self.group)  # type: ignore[no-untyped-call]
        return total


class LayerNorm(nn.LayerNorm):
    """Layer norm of each step. It ignores `valid`: padding does not affect other steps."""

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return super().forward(x)


FOLDED = (BatchNorm, LayerNorm)  # the norms whose scale and shift streams and exports fold into the core's weights


def make_norm(name: Norm, d_model: int, bias: bool = True) -> BatchNorm | LayerNorm:
    """The norm of H features by its name."""
    return BatchNorm(d_model) if name == "batch" else LayerNorm(d_model, bias=bias)


class _SumOver(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        x = x.clone()
        torch.distributed.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous().clone()
        torch.distributed.all_reduce(grad, group=ctx.group)
        return grad, None
