"""The encoder of a model, from its inputs to H features, and how linear maps and embeddings start."""

import torch
from torch import Tensor, nn

from linrnn.config import ModelConfig
from linrnn.util.precision import autocast_dtype


def make_encoder(config: ModelConfig) -> nn.Module:
    """A linear map of numbers, an embedding of tokens, or the sum of both."""
    if config.vocabulary is None:
        assert config.channels is not None
        return nn.Linear(config.channels, config.d_model)
    if config.channels is None:
        return nn.Embedding(config.vocabulary, config.d_model)
    return NumbersAndTokens(config.channels, config.vocabulary, config.d_model)


def encode(encoder: nn.Module, inputs: Tensor) -> Tensor:
    """The encoder's output, in autocast's dtype if it is enabled: autocast does not convert embeddings."""
    x: Tensor = encoder(inputs)
    dtype = autocast_dtype(x.device)
    return x if dtype is None else x.to(dtype)


class NumbersAndTokens(nn.Module):
    """The encoder of numbers with token ids in the last column, (..., channels + 1) to (..., H)."""

    def __init__(self, channels: int, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.numbers = nn.Linear(channels, d_model)
        self.tokens = nn.Embedding(vocabulary, d_model)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers, ids = inputs[..., :-1].to(self.numbers.weight.dtype), inputs[..., -1].long()
        encoded: Tensor = self.numbers(numbers)
        symbols: Tensor = self.tokens(ids)
        return encoded + symbols.to(encoded.dtype)


@torch.no_grad()
def initialize(module: nn.Module) -> None:
    """Initialize linear maps with variance 1/inputs and zero bias; embeddings too, as linear maps of one-hot tokens.

    With PyTorch's defaults (embeddings of variance 1, linear maps of variance 1/(3·inputs)) the outputs of the blocks
    would be small compared with the embeddings.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.num_embeddings**-0.5)
