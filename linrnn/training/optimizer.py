"""AdamW with the paper's two groups, and the learning rate's rise and fall."""

import math

import torch
from torch import nn

from linrnn.model import Model
from linrnn.recipes import Training
from linrnn.recurrence import backend
from linrnn.training.adamw import AdamW

LOWEST_RATE = 1e-7


def make_optimizer(model: Model, training: Training) -> AdamW:
    """The recurrent parameters (Λ, B, γ) have a smaller rate and no weight decay."""
    recurrent = {id(p) for p in model.recurrent_parameters()}
    if not training.slow_B:
        recurrent -= {id(block.core.get_parameter("B")) for block in model.blocks}
    groups = [
        {"params": [p for p in model.parameters() if id(p) in recurrent], "weight_decay": 0.0},
        {"params": [p for p in model.parameters() if id(p) not in recurrent], "weight_decay": training.weight_decay},
    ]
    # rates are tensors, which a captured step reads at every replay
    device = next(model.parameters()).device
    for group in groups:
        group["lr"] = torch.tensor(0.0, device=device)
    return AdamW(groups, fused=True, capturable=backend.captures(device))


def set_rate(optimizer: torch.optim.Optimizer, training: Training, step: int) -> float:
    """Set the rates of both groups for this step; returns the base rate."""
    rate = learning_rate(training, step)
    for group, factor in zip(optimizer.param_groups, (training.recurrent_factor, 1.0), strict=True):
        group["lr"].fill_(rate * factor)
    return rate


def learning_rate(training: Training, step: int) -> float:
    """Linear from 1e-7 to the base rate over the warm-up, then a cosine down to 1e-7 at the last step."""
    peak, rise = training.learning_rate, round(training.warmup * training.steps)
    if step < rise:
        return LOWEST_RATE + (peak - LOWEST_RATE) * step / rise
    done = (step - rise) / max(training.steps - 1 - rise, 1)
    return LOWEST_RATE + (peak - LOWEST_RATE) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def named(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """The optimizer's state by the names of parameters."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: state for p, state in optimizer.state.items()}
