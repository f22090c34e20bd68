"""The layers of `linrnn.nn`, one class for each core; docs/guide/from-gru.md compares their arguments with nn.GRU's."""

from collections.abc import Mapping
from typing import Any, ClassVar

from linrnn import cores
from linrnn.nn.stack import Stack


class LRU(Stack):
    """Layers of Linear Recurrent Units with the arguments and shapes of `torch.nn.GRU`.

    A linear map to `hidden_size` features comes first. Then each layer is the paper's residual block,
    x + GLU(gelu(LRU(norm(x)))).

    Args:
        input_size: the number of input features.
        hidden_size: the number of features of the blocks and of the outputs.
        num_layers: the number of blocks.
        bias: False removes the biases of linear maps and of layer norm.
        batch_first: inputs and outputs are (batch, length, features), not (length, batch, features).
        dropout: the probability that a feature is zero for a whole sequence, in all blocks but the last.
        bidirectional: each block has a second core, which reads the sequence from its end. Blocks and outputs then
            have 2 · hidden_size features, and each feature depends on both directions.
        proj_size: if above 0, a last linear map gives this number of output features (for each direction).
        d_state: N, the number of complex states; by default hidden_size/2, which makes the state as large as the state
            of a GRU.
        norm: `layer`, or `batch` as in the paper. Batch norm uses the statistics of the batch in training.
        mixing: `glu`, `half_glu` or `half_glu2`, as in `linrnn.ModelConfig`.
        device: the device of the parameters.
        dtype: the dtype of the parameters.
        options: keyword arguments of `linrnn.LRU`: r_min and r_max (by default 0.9 and 0.999, for memories of tens to
            hundreds of steps), max_phase, counters, parameterization and normalize.

    The state is (directions · num_layers, batch, 2N) in float32 or better: for each layer and direction the real
    parts, then the imaginary parts. A sequence may be passed in parts, with the state of one call as the `hx` of the
    next. The outputs equal the outputs for the whole sequence in evaluation; in training they do with layer norm and
    without dropout.

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
