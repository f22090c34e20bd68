"""AdamW in one kernel for all parameters, where PyTorch uses three.

On an H200 it saves 60 to 90 µs of a step (results/bench/timeline.json): 3% on ListOps and Pathfinder, 1% on sCIFAR.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linrnn.recurrence import backend

ALIGNED = 16  # bytes, of the addresses that the kernel reads from


class Update(NamedTuple):
    """One parameter, its gradient and its state."""

    p: Tensor
    grad: Tensor
    m: Tensor  # mean of gradients
    v: Tensor  # mean of their squares
    step: Tensor  # the number of steps so far, on the device
    group: dict[str, Any]  # the settings of the parameter group; the rate is on the device


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW with the same state; on a GPU one kernel computes the step if everything is in float32."""

    _spare: Tensor | None = None
    _captured: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        updates = list(self._updates()) if closure is None else []
        scaled = hasattr(self, "grad_scale")  # set by a GradScaler, which leaves scaling to the optimizer
        if not updates or scaled or not all(_fits(update, updates[0].p.device) for update in updates):
            return super().step(closure)
        from linrnn.training import gpu

        updates = [update._replace(grad=_plain(update.grad)) for update in updates]
        torch._foreach_add_([update.step for update in updates], 1)
        table, programs = gpu.adamw_table(updates)
        gpu.adamw(self._to_device(table, updates[0].p.device), programs)
        return None

    def _updates(self) -> Iterator[Update]:
        """The updates of all parameters with a gradient; missing state is created as in PyTorch."""
        for group in self.param_groups:
            lists: tuple[list[Tensor], ...] = ([], [], [], [], [], [])
            self._init_group(group, *lists)  # type: ignore[no-untyped-call]
            params, grads, means, squares, _, steps = lists
            for tensors in zip(params, grads, means, squares, steps, strict=True):
                yield Update(*tensors, group)

    def _to_device(self, table: Tensor, device: torch.device) -> Tensor:
        """A captured step copies the table at every replay, from pinned memory that stays allocated; memory cannot be
        pinned during the capture."""
        if not backend.captures(device):
            return table
        ready = self._spare is not None and self._spare.shape == table.shape
        if not torch.cuda.is_current_stream_capturing():
            if not ready:
                self._spare = torch.empty_like(table, pin_memory=True)
            return table.to(device, non_blocking=True)
        if self._spare is None or not ready:
            raise RuntimeError("step: expected a step with the same gradients before the capture, got none")
        table, self._spare = self._spare.copy_(table), None
        self._captured = (*self._captured, table)
        return table.to(device, non_blocking=True)


def _fits(update: Update, device: torch.device) -> bool:
    """Whether the kernel can compute the step."""
    p, grad, m, v, step, group = update
    scalars = (step, group["lr"])
    if not _on_gpu(p) or any(group[option] for option in ("amsgrad", "maximize", "differentiable")):
        return False
    if not all(isinstance(x, Tensor) for x in scalars) or any(isinstance(beta, Tensor) for beta in group["betas"]):
        return False
    alike = all(x.dtype == torch.float32 and x.device == device for x in (p, grad, m, v, *scalars))
    return alike and all(x.is_contiguous() and x.data_ptr() % ALIGNED == 0 for x in (p, m, v))


def _on_gpu(p: Tensor) -> bool:
    return backend.triton(p.device)


def _plain(grad: Tensor) -> Tensor:
    """The gradient, contiguous and aligned, which a part of a larger tensor may not be."""
    grad = grad.contiguous()
    return grad.clone() if grad.data_ptr() % ALIGNED else grad
