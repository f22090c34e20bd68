"""One class for each core; docs/guide/from-gru.md has the table of arguments."""

from collections.abc import Mapping
from typing import Any, ClassVar

from linrnn import cores
from linrnn.nn.stack import Stack


class LRU(Stack):
    """Layers of Linear Recurrent Units with the arguments and shapes of `torch.nn.GRU`.

    x = W·input, then for each layer x + GLU(gelu(LRU(norm(x)))), the paper's residual block.

    Args:
        input_size: the number of input features.
        hidden_size: the number of output features, and the width of the blocks.
        num_layers: the number of blocks.
        bias: False removes the biases of linear maps and of layer norm.
        batch_first: inputs and outputs are (batch, length, features), not (length, batch, features).
        dropout: probability to drop a feature of a whole sequence inside each block but the last.
        bidirectional: each block has a second core, which reads the sequence from its end; blocks and outputs have
            2 · hidden_size features, and each feature depends on both directions.
        proj_size: if above 0, a linear map gives so many output features (for each direction).
        d_state: N, the number of complex states; by default hidden_size/2, so that the state has as many numbers as
            the state of a GRU.
        norm: `layer`, or `batch` as in the paper: it uses the statistics of the batch in training.
        mixing: `glu`, `half_glu` or `half_glu2`, as in `linrnn.ModelConfig`.
        options: of `linrnn.LRU`: r_min and r_max (by default 0.9 and 0.999, for memories of tens to hundreds of steps),
            max_phase, counters, parameterization and normalize.

    The state is (directions · num_layers, batch, 2N), in float32 or better: for each layer and direction the real
    parts, then the imaginary parts. Handed on as `hx` it continues the sequence: the outputs are the outputs of the
    whole sequence, in evaluation, and in training with layer norm and without dropout.

    Example:
        >>> rnn = linrnn.nn.LRU(16, 64, num_layers=2, batch_first=True)
        >>> output, h_n = rnn(torch.randn(8, 100, 16))  # (8, 100, 64) and (2, 8, 64)
        >>> output, h_n = rnn(torch.randn(8, 50, 16), h_n)  # the next 50 steps
    """

    core = cores.LRU
    defaults: ClassVar[Mapping[str, Any]] = {"r_min": 0.9, "r_max": 0.999}


class S5(Stack):
    """Layers of S5 with the arguments and shapes of `torch.nn.GRU`: `linrnn.nn.LRU` with another core.

    `options` are the keyword arguments of `linrnn.S5`: blocks, discretization, dt_min and dt_max.

    Example:
        >>> rnn = linrnn.nn.S5(16, 64, num_layers=2, batch_first=True)
        >>> output, h_n = rnn(torch.randn(8, 100, 16))  # (8, 100, 64) and (2, 8, 64)
    """

    core = cores.S5


class S4D(Stack):
    """Layers of S4D with the arguments and shapes of `torch.nn.GRU`: `linrnn.nn.LRU` with another core.

    Each feature has N complex states (`d_state`, by default 32). The state is (directions · num_layers, batch, 2·H·N),
    where H is hidden_size, or 2 · hidden_size with both directions. `options` are the keyword arguments of
    `linrnn.S4D`: init, discretization, input_multiplier, decoupled, dt_min and dt_max.

    Example:
        >>> rnn = linrnn.nn.S4D(16, 64, num_layers=2, batch_first=True)
        >>> output, h_n = rnn(torch.randn(8, 100, 16))  # (8, 100, 64) and (2, 8, 4096)
    """

    core = cores.S4D

    @staticmethod
    def default_d_state(hidden_size: int) -> int:
        return 32
