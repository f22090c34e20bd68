"""`ModelConfig`: all that is needed to build a model, and the check of inputs against it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from linrnn.cores import CORES
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value

FORMAT = 1  # of config.json; it grows when older versions would misread a saved model
Norm = Literal["batch", "layer"]
Mixing = Literal["glu", "half_glu", "half_glu2"]


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a task gives a model: its inputs and outputs.

    Attributes:
        channels: features of each input step, for numbers such as pixels.
        vocabulary: the number of symbols, for tokens. At least one of the two; with both, a step has numbers and a
            token side by side.
        classes: the width of the output.
        documents: 2 for pairs of documents (retrieval), otherwise 1.
    """

    channels: int | None = None
    vocabulary: int | None = None
    classes: int
    documents: Literal[1, 2] = 1

    def check_inputs(self, inputs: Tensor, parameter: Tensor, batch_dims: int) -> None:
        """Raise TypeError or ValueError for inputs that a model with this parameter does not take.

        Args:
            inputs: (batch, length, ...) with `batch_dims=2`, one step (batch, ...) with `batch_dims=1`.
            parameter: any parameter of the model, for its device and dtype.
            batch_dims: the number of dimensions before the features.
        """
        check_tensor("inputs", inputs)
        if inputs.device != parameter.device:
            raise wrong_value("inputs", f"a tensor on {parameter.device}, as the parameters", f"one on {inputs.device}")
        dims = ", ".join(("batch", "length")[:batch_dims])
        if self.channels is None:
            if inputs.dtype not in (torch.int64, torch.int32):
                raise wrong_type("inputs", "integer tokens (torch.int64 or torch.int32)", inputs.dtype)
            if inputs.dim() != batch_dims:
                raise wrong_value("inputs", f"shape ({dims})", shape(inputs))
            return
        autocast = inputs.is_floating_point() and torch.is_autocast_enabled(inputs.device.type)
        exact = self.vocabulary is not None and inputs.dtype == torch.float32  # half precision would round the tokens
        if inputs.dtype != parameter.dtype and not autocast and not exact:
            raise wrong_type("inputs", f"{parameter.dtype}, as the parameters", inputs.dtype)
        columns, name = (self.channels, "channels") if self.vocabulary is None else (self.channels + 1, "channels + 1")
        if inputs.dim() != batch_dims + 1 or inputs.shape[-1] != columns:
            raise wrong_value("inputs", f"shape ({dims}, {name}) with channels = {self.channels}", shape(inputs))


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a recipe gives a model: everything else.

    Attributes:
        d_model, d_state, depth: H, N and the number of blocks.
        core: the recurrent layer, by name, and options: its keyword arguments, such as {"r_min": 0.9}.
        mixing: of h = gelu(core), `glu`; `half_glu`, h·sigmoid(W·h), without a linear map of the value; or `half_glu2`,
            core·sigmoid(W·h), whose value is what the core gave, as in S5.
        norm: `batch` or `layer`, before each core.
        dropout: probability to drop a feature of a whole sequence.
        pooling: `mean` over the steps that are not padding; `all`, the mean over padding too, which is read like any
            step, as in a public JAX implementation of the LRU; `last`, the last step that is not padding; or `none` for
            an output at every step.
    """

    d_model: int
    d_state: int
    depth: int = 6
    core: str = "lru"
    options: Mapping[str, Any] = field(default_factory=dict)
    mixing: Mixing = "glu"
    norm: Norm = "batch"
    dropout: float = 0.0
    pooling: Literal["mean", "all", "last", "none"] = "mean"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture, Interface):  # in this order the fields of Interface come first, as in saved models
    """All that is needed to build a `Model`: the attributes of `Interface` and of `Architecture`."""

    def __post_init__(self) -> None:
        if self.channels is None and self.vocabulary is None:
            raise wrong_value("channels, vocabulary", "at least one of the two", "neither")
        for name in ("channels", "vocabulary", "classes", "d_model", "d_state", "depth"):
            size = getattr(self, name)
            if size is not None:
                check_integer(name, size, 0 if name == "depth" else 1)
        hints = get_type_hints(ModelConfig)
        choices = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
        for name, known in {"core": CORES, **choices}.items():
            if getattr(self, name) not in known:
                raise wrong_value(name, " or ".join(map(repr, known)), repr(getattr(self, name)))
        if not 0 <= self.dropout < 1:
            raise wrong_value("dropout", "a probability from 0 to below 1", self.dropout)
        if self.documents == 2 and self.pooling == "none":
            raise wrong_value("pooling", "'mean', 'all' or 'last' for two documents", repr(self.pooling))

    def to_dict(self) -> dict[str, Any]:
        """What config.json of a saved model holds: the format's version and all fields."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "ModelConfig":
        """The config that `to_dict` gave, also of earlier versions; fields of later versions are named in the error."""
        fields = dict(saved)
        version = fields.pop("format", 0)  # earlier versions wrote none
        unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown or not isinstance(version, int) or version > FORMAT:
            names = f", with the unknown fields {', '.join(map(repr, unknown))}" if unknown else ""
            newer = "a newer linrnn may read it: pip install --upgrade linrnn"
            raise ValueError(f"format: expected at most {FORMAT}, got {version!r}{names}; {newer}")
        return cls(**fields)
