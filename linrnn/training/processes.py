"""One process or several: data-parallel training, started by `torchrun`."""

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from linrnn.norm import BatchNorm
from linrnn.util.errors import wrong_value


@dataclass(frozen=True)
class Processes:
    """This process among all; without torchrun it is the first of one."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    def device(self, wanted: str | None) -> torch.device:
        """The device of this process. A numbered GPU becomes the current GPU, whose generator checkpoints hold."""
        try:
            device = torch.device(wanted or ("cuda" if torch.cuda.is_available() else "cpu"))
        except RuntimeError as error:
            raise wrong_value("device", "cpu, cuda or cuda:0", repr(wanted)) from error
        if device.type not in ("cpu", "cuda"):
            raise wrong_value("device", "cpu, cuda or cuda:0", repr(wanted))
        gpus = torch.cuda.device_count()
        if device.type == "cuda" and (device.index or 0) >= gpus:
            raise wrong_value("device", "a device of this machine", f"{wanted}, but there {_count(gpus)}")
        if device.type == "cuda" and self.count > 1:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
        return device

    def part(self, batch: Tensor) -> Tensor:
        """This process's share of a batch."""
        if len(batch) % self.count:
            raise wrong_value("training.batch_size", f"a multiple of the {self.count} processes", len(batch))
        return batch.view(self.count, -1)[self.rank]

    def wrap(self, model: nn.Module) -> nn.Module:
        """Average gradients over processes, and let batch norm use the whole batch."""
        if self.count == 1:
            return model
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.group = dist.group.WORLD
        parallel: Any = nn.parallel.DistributedDataParallel
        names = inspect.signature(parallel).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"  # its older name
        wrapped: nn.Module = parallel(model, **{sync: False})  # buffers are equal, and the first evaluates alone
        return wrapped

    def mean(self, x: Tensor) -> Tensor:
        if self.count > 1:
            x = x.clone()
            dist.all_reduce(x)
            x /= self.count
        return x

    def of_first(self, number: int) -> int:
        """The number of the first process, which evaluates."""
        if self.count == 1:
            return number
        said = torch.tensor(number, device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.broadcast(said, 0)
        return int(said)

    def any(self, flag: Any) -> bool:
        """Whether the value is true in any process, so that all stop at the same step."""
        if self.count == 1:
            return bool(flag)
        said = torch.tensor(float(bool(flag)), device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(said)
        return bool(said)

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()


def _count(gpus: int) -> str:
    return {0: "is no GPU", 1: "is one GPU"}.get(gpus, f"are {gpus} GPUs")


@contextmanager
def processes(device: str | None) -> Iterator[Processes]:
    """Context manager that joins all processes that torchrun started; without torchrun only this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    dist.init_process_group("nccl" if Processes().device(device).type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
