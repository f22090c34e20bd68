"""Batch norm over real steps, alone or over several processes; before a linear core it can go into its weights."""

from typing import Any

import torch
from torch import Tensor, nn

from linrnn.fast import fused
from linrnn.fast.fused import Moments


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (batch, length, H) or (batch, H) over all steps but padding, and over all processes of a group."""

    group: Any = None

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if not self.training or (real is None and self.group is None):
            return super().forward(x.flatten(0, -2)).view(x.shape)
        if real is not None:
            x = x.masked_fill(~real.unsqueeze(-1), 0)  # whatever padding holds
        scale, shift = self.scale_and_shift(x, real)
        return (x * scale + shift).to(x.dtype)

    def scale_and_shift(self, x: Tensor, real: Tensor | None, moments: Moments | None = None) -> tuple[Tensor, Tensor]:
        """The norm as scale ⊙ x + shift, both (H,); in training the running statistics follow.

        In training that takes the moments of x, and so a pass over it if they are not known.
        """
        assert self.running_mean is not None
        assert self.running_var is not None
        if not self.training:
            scale = self.weight * torch.rsqrt(self.running_var + self.eps)
            return scale, self.bias - self.running_mean * scale
        near, total, square = fused.moments(x, real) if moments is None else moments
        steps = x.new_tensor(x.shape[0] * x.shape[1], dtype=torch.int64) if real is None else real.sum()
        count = steps.clamp(min=1)
        mean = total / count
        var = (square / count - mean.square()).clamp(min=0)
        mean, var, steps = self._over_group(near + mean, var, steps)
        count = steps.clamp(min=1)
        self._follow(mean.detach(), var.detach() * count / (count - 1).clamp(min=1), steps > 0)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return scale, self.bias - mean * scale

    def _over_group(self, mean: Tensor, var: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance over so many steps of each process, to those over all steps of all, and their number.

        Each process has its own `near`: means can be averaged, and variances once they are around the common mean.
        """
        if self.group is None:
            return mean, var, steps
        total = self._sum(steps)
        count = total.clamp(min=1)
        common = self._sum(mean * steps) / count
        return common, self._sum((var + (mean - common).square()) * steps) / count, total

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor, found: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        momentum = self.momentum * found.to(self.running_mean.dtype)  # padding alone tells nothing
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(var.to(self.running_var.dtype), momentum)

    def _sum(self, x: Tensor) -> Tensor:
        """The sum over all processes; so is its gradient."""
        total: Tensor = _SumOver.apply(x, self.group)  # type: ignore[no-untyped-call]
        return total


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
