"""The same function of the same parameters, arranged for a GPU: fused, over chunks, packed, compiled, captured."""

from linrnn.fast.accelerated import Accelerated, accelerate, packs, reason

__all__ = ["Accelerated", "accelerate", "packs", "reason"]
