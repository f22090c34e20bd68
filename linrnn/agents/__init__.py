"""Memory for agents: a recurrent part of a policy that keeps its state over steps and forgets at episode borders.

`Memory` needs PyTorch only; `linrnn.agents.torchrl.MemoryModule` puts it into policies of TorchRL.
"""

from linrnn.agents.memory import Memory

__all__ = ["Memory"]
