import pytest
import torch
from torch import nn

import linrnn


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.first = linrnn.LRU(8, 4)
        self.rest = linrnn.nn.S4D(8, 6, bidirectional=True)
        self.head = nn.Linear(12, 9)
        self.head.weight.requires_grad_(False)


def names(module: nn.Module, group: dict[str, list[nn.Parameter]]) -> set[str]:
    known = {id(p): name for name, p in module.named_parameters()}
    return {known[id(p)] for p in group["params"]}


def test_recurrent_parameters_are_slow_and_do_not_decay() -> None:
    module = Tagger()
    recurrent, others = linrnn.param_groups(module, lr=0.01, weight_decay=0.3, recurrent_factor=0.1)
    assert (recurrent["lr"], recurrent["weight_decay"]) == (pytest.approx(0.001), 0.0)
    assert (others["lr"], others["weight_decay"]) == (0.01, 0.3)
    inside = {f"rest.blocks.0.core.cores.{i}.{name}" for i in (0, 1) for name in ("a_re_log", "a_im", "delta_log", "B")}
    assert names(module, recurrent) == {f"first.{name}" for name in ("nu_log", "theta_log", "B", "gamma_log")} | inside
    assert names(module, recurrent) | names(module, others) == {name for name, _ in module.named_parameters()}
    assert not names(module, recurrent) & names(module, others)


def test_the_groups_are_those_of_training() -> None:
    model = linrnn.Model(linrnn.ModelConfig(channels=2, classes=3, d_model=4, d_state=3, depth=2))
    recurrent, _ = linrnn.param_groups(model, lr=0.01)
    assert [id(p) for p in recurrent["params"]] == [id(p) for p in model.recurrent_parameters()]


def test_shared_layers_are_in_one_group_once() -> None:
    layer = linrnn.LRU(4, 3)
    groups = linrnn.param_groups(nn.ModuleList([layer, nn.ModuleList([layer])]), lr=0.01)
    assert sum(len(group["params"]) for group in groups) == len(list(layer.parameters()))


def test_optimizers_take_them() -> None:
    module, rate = Tagger(), torch.tensor(0.01)
    optimizer = torch.optim.AdamW(linrnn.param_groups(module, lr=rate))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    module.rest(module.first(module.embedding(torch.randint(9, (2, 5))))[0].transpose(0, 1))[0].sum().backward()
    optimizer.step()
    schedule.step()
    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.0025, 0.005])


def test_a_module_without_our_layers() -> None:
    module = nn.GRU(3, 4)
    recurrent, others = linrnn.param_groups(module, lr=0.01)
    assert recurrent["params"] == []
    assert len(others["params"]) == 4
    torch.optim.AdamW([recurrent, others])
