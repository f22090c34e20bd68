"""The optimizer's groups of the paper."""

from typing import Any

from torch import Tensor, nn

from linrnn.cores import Core


def param_groups(
    module: nn.Module, lr: float | Tensor, *, weight_decay: float = 0.05, recurrent_factor: float = 0.5
) -> list[dict[str, Any]]:
    """Groups of parameters for an optimizer: recurrent parameters (Λ, B, γ, Δ) have a smaller rate and no decay.

    Args:
        module: any module that contains layers of linrnn, at any depth.
        lr: the learning rate of all other parameters.
        weight_decay: of all other parameters.
        recurrent_factor: the rate of the recurrent parameters is this times `lr`.

    Returns:
        Two groups, the recurrent parameters first; either may be empty.

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
