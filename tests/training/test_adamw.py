"""AdamW in one kernel against PyTorch's: in Triton's interpreter, and on a GPU as it is and captured."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from linrnn.training import adamw
from linrnn.training.adamw import AdamW
from linrnn.training.gpu import BLOCK

SHAPES: list[tuple[int, ...]] = [(3,), (5, 7), (BLOCK,), (0,), (2, BLOCK + 3), (), (33, 64)]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw, "_on_gpu", lambda p: True)


class Pair:
    """The same parameters twice, for our optimizer and PyTorch's, with two groups that differ in all they can."""

    def __init__(self, device: str = "cpu", shapes: list[tuple[int, ...]] = SHAPES) -> None:
        self.ours = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
        self.theirs = [p.detach().clone().requires_grad_() for p in self.ours]
        options: dict[str, Any] = {"fused": True, "capturable": device == "cuda"}
        self.optimizers = (
            AdamW(self.groups(self.ours, device), **options),
            torch.optim.AdamW(self.groups(self.theirs, device), **options),
        )

    @staticmethod
    def groups(params: list[Tensor], device: str) -> list[dict[str, Any]]:
        first = {"params": params[:2], "weight_decay": 0.0, "lr": torch.tensor(0.01, device=device)}
        second = {"params": params[2:], "weight_decay": 0.1, "lr": torch.tensor(0.03, device=device)}
        return [first, second | {"betas": (0.8, 0.99), "eps": 1e-3}]

    def set_gradients(self, without: tuple[int, ...] = ()) -> None:
        for i, (ours, theirs) in enumerate(zip(self.ours, self.theirs, strict=True)):
            ours.grad = None if i in without else 0.1 * torch.randn_like(ours)
            theirs.grad = None if ours.grad is None else ours.grad.clone()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def check(self) -> None:
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
            states = [o.state.get(p, {}) for o, p in zip(self.optimizers, (ours, theirs), strict=True)]
            assert list(states[0]) == list(states[1])
            for key, expected in states[1].items():
                torch.testing.assert_close(states[0][key], expected, rtol=1e-6, atol=1e-7)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The programs of each launch of the kernel."""
    from linrnn.training import gpu

    seen: list[int] = []
    kernel = gpu.adamw

    def counted(table: Tensor, programs: int) -> None:
        seen.append(programs)
        kernel(table, programs)

    monkeypatch.setattr(gpu, "adamw", counted)
    return seen


@pytest.mark.usefixtures("interpreted")
def test_steps_are_those_of_pytorch(launches: list[int]) -> None:
    """Among them a parameter without a gradient, and one that gets its first later."""
    pair = Pair()
    for step in range(4):
        pair.set_gradients(without=(1, 4) if step == 0 else (1,))
        for optimizer in pair.optimizers:
            optimizer.param_groups[1]["lr"].fill_(0.1 / (step + 1))
        pair.step()
        pair.check()
    assert launches == [5, *[8] * 3]
    assert float(pair.optimizers[0].state[pair.ours[4]]["step"]) == 3


@pytest.mark.usefixtures("interpreted")
def test_gradients_that_are_not_in_order_or_not_aligned(launches: list[int]) -> None:
    pair = Pair(shapes=[(5, 7), (64,), (9, 4)])
    for _ in range(2):
        pair.set_gradients()
        others = (torch.empty(7, 5).T, torch.empty(65)[1:], torch.empty(9, 8)[:, ::2])
        for p, other in zip(pair.ours, others, strict=True):
            assert p.grad is not None
            p.grad = other.copy_(p.grad)
        pair.step()
        pair.check()
    assert len(launches) == 2


@pytest.mark.usefixtures("interpreted")
def test_it_goes_on_from_the_state_of_either(launches: list[int]) -> None:
    pair = Pair()
    for _ in range(3):
        pair.set_gradients()
        pair.step()
        ours, theirs = (copy.deepcopy(optimizer.state_dict()) for optimizer in pair.optimizers)
        pair.optimizers[0].load_state_dict(theirs)
        pair.optimizers[1].load_state_dict(ours)
        pair.check()
    assert len(launches) == 3


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("change", [{"amsgrad": True}, {"maximize": True}, {"lr": 0.01}], ids=str)
def test_what_the_kernel_cannot_do_is_left_to_pytorch(change: dict[str, Any], launches: list[int]) -> None:
    pair = Pair(shapes=[(3,), (5, 7), (4,)])
    for optimizer in pair.optimizers:
        optimizer.param_groups[0].update(change)
    for _ in range(2):
        pair.set_gradients()
        pair.step()
        pair.check()
    assert not launches


@pytest.mark.usefixtures("interpreted")
def test_a_closure_and_other_precisions_are_left_to_pytorch(launches: list[int]) -> None:
    p = torch.ones(3, dtype=torch.float64, requires_grad=True)
    optimizer = AdamW([p], lr=torch.tensor(0.1), fused=True)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3
    optimizer.step()
    assert not launches
    assert (p < 1).all()


def test_on_a_cpu_it_is_pytorchs(launches: list[int]) -> None:
    pair = Pair()
    for _ in range(2):
        pair.set_gradients()
        pair.step()
        pair.check()
    assert not launches


@pytest.mark.gpu
def test_on_a_gpu(launches: list[int]) -> None:
    pair = Pair("cuda", [*SHAPES, (1000, 1000)])
    for step in range(5):
        pair.set_gradients(without=(1,) if step == 2 else ())
        pair.step()
        pair.check()
    assert len(launches) == 5


@pytest.mark.gpu
def test_captured_on_a_gpu(launches: list[int]) -> None:
    """Replays read rates and gradients anew, and stay right when the optimizer is used beside them."""
    pair = Pair("cuda")
    gradients = [torch.zeros_like(p) for p in pair.ours]

    def step() -> None:
        for p, gradient in zip(pair.ours, gradients, strict=True):
            p.grad = gradient * 2  # a new address
        pair.optimizers[0].step()

    def draw() -> None:
        pair.set_gradients()
        for p, q, gradient in zip(pair.ours, pair.theirs, gradients, strict=True):
            assert p.grad is not None
            assert q.grad is not None
            gradient.copy_(p.grad)
            q.grad.mul_(2)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    draw()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        pair.optimizers[1].step()
        with torch.cuda.graph(graph, stream=stream):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    pair.check()
    for turn in range(6):
        draw()
        for optimizer in pair.optimizers:
            optimizer.param_groups[1]["lr"].fill_(0.1 / (turn + 1))
        step() if turn == 3 else graph.replay()
        pair.optimizers[1].step()
        pair.check()
    assert len(launches) == 3
