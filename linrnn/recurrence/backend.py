import importlib.util

import torch


def triton(device: torch.device) -> bool:
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None
