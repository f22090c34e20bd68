"""Autocast, switched off where half precision would not do."""

import contextlib
from typing import Any

import torch


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Context manager without autocast on this device; on `meta` there is none to switch off."""
    return contextlib.nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of autocast on this device; None where it is off."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)
