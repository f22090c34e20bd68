"""The parameter groups that the paper trains with different learning rates and weight decays."""

from typing import Any

from torch import Tensor, nn

from linrnn.cores import Core
from linrnn.util.types import checked


@checked
def param_groups(
    module: nn.Module, lr: float | Tensor, *, weight_decay: float = 0.05, recurrent_factor: float = 0.5
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: recurrent parameters (Λ, B, γ, Δ) get a smaller learning rate and no decay.

    Args:
        module: any module that contains layers of linrnn, at any depth.
        lr: the learning rate of all other parameters.
        weight_decay: the weight decay of all other parameters.
        recurrent_factor: the learning rate of the recurrent parameters is `recurrent_factor` · `lr`.

    Returns:
        Two groups, the recurrent parameters first. A group may be empty.

    Example:
        >>> optimizer = torch.optim.AdamW(linrnn.param_groups(model, lr=1e-3))
    """
    cores = [part for part in module.modules() if isinstance(part, Core)]
    recurrent = {id(p): p for core in cores for p in core.recurrent_parameters()}
    others = [p for p in module.parameters() if id(p) not in recurrent]
    return [
        {"params": list(recurrent.values()), "lr": lr * recurrent_factor, "weight_decay": 0.0},
        {"params": others, "lr": lr, "weight_decay": weight_decay},
    ]
