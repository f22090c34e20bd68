"""The configuration of a model, and the check of inputs against it."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from linrnn.cores import check_core
from linrnn.norm import Norm
from linrnn.recurrence.backend import values_are_near
from linrnn.util.errors import check_integer, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.precision import autocast_dtype
from linrnn.util.types import check_fields

LATER = ("last_norm",)  # fields that early releases do not know
FORMAT = 1  # the version of config.json; raised when older releases would misread a saved model
Mixing = Literal["glu", "half_glu", "half_glu2"]


def saved_fields(config: Any, later: Collection[str]) -> dict[str, Any]:
    """The fields of a configuration for JSON. Fields that were added later are left out if they have their defaults."""
    default = {f.name for f in dataclasses.fields(config) if f.name in later and getattr(config, f.name) == f.default}
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in default}


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The fields of a model's configuration that the task determines: its inputs and outputs.

    Attributes:
        channels: the number of numeric features per step, such as pixel values; None if inputs are tokens only.
        vocabulary: the number of token ids; None if inputs are numbers only. At least one of `channels` and
            `vocabulary` is required. With both, the last column of the inputs holds token ids.
        classes: the number of output features.
        documents: 2 if an input is a pair of documents (retrieval), otherwise 1.
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
        autocast = inputs.is_floating_point() and autocast_dtype(inputs.device) is not None
        exact = self.vocabulary is not None and inputs.dtype == torch.float32  # half precision would round the tokens
        if inputs.dtype != parameter.dtype and not autocast and not exact:
            raise wrong_type("inputs", f"{parameter.dtype}, as the parameters", inputs.dtype)
        columns, name = (self.channels, "channels") if self.vocabulary is None else (self.channels + 1, "channels + 1")
        if inputs.dim() != batch_dims + 1 or inputs.shape[-1] != columns:
            raise wrong_value("inputs", f"shape ({dims}, {name}) with channels = {self.channels}", shape(inputs))

    def check_tokens(self, inputs: Tensor) -> None:
        """Raise ValueError for token ids outside the vocabulary. On a GPU only the kernels check them."""
        if self.vocabulary is None or not inputs.numel() or not values_are_near(inputs):
            return
        ids = inputs if self.channels is None else inputs[..., -1]
        low, high = (x.item() for x in ids.aminmax())
        if not (low >= 0 and high < self.vocabulary):
            raise wrong_value("inputs", f"tokens from 0 to {self.vocabulary - 1}", high if low >= 0 else low)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The fields of a model's configuration that the recipe chooses.

    Attributes:
        d_model: H, the number of features between blocks.
        d_state: N, the state size of each core.
        depth: the number of blocks.
        core: the name of the recurrent layer, such as `lru`.
        options: keyword arguments of the recurrent layer, such as {"r_min": 0.9}.
        mixing: the nonlinearity after each core with output y, where h = gelu(y): `glu`, GLU(W·h); `half_glu`,
            h·sigmoid(W·h); or `half_glu2`, y·sigmoid(W·h), as in S5.
        norm: the normalization before each core, `batch` or `layer`.
        last_norm: whether the output of the last block is normalized too, before pooling.
        dropout: the probability that a feature is zero for a whole sequence.
        pooling: `mean` over the steps before the padding; `all`, the mean over padding too, which the model then reads
            like any other step; `last`, the last step before the padding; or `none`, an output at every step.
    """

    d_model: int
    d_state: int
    depth: int = 6
    core: str = "lru"
    options: Mapping[str, Any] = field(default_factory=dict)
    mixing: Mixing = "glu"
    norm: Norm = "batch"
    last_norm: bool = False
    dropout: float = 0.0
    pooling: Literal["mean", "all", "last", "none"] = "mean"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture, Interface):  # in this order the fields of Interface come first, as in saved models
    """The configuration of a `Model`: the attributes of `Interface` and `Architecture`. All are keyword-only.

    Example:
        >>> config = linrnn.ModelConfig(channels=3, classes=10, d_model=128, d_state=64, options={"r_min": 0.9})
        >>> model = linrnn.Model(config)
    """

    def __post_init__(self) -> None:
        check_fields(self, exact=False)
        if self.channels is None and self.vocabulary is None:
            raise wrong_value("channels, vocabulary", "at least one of the two", "neither")
        for name in ("channels", "vocabulary", "classes", "d_model", "d_state", "depth"):
            size = getattr(self, name)
            if size is not None:
                check_integer(name, size, 0 if name == "depth" else 1)
        hints = get_type_hints(ModelConfig)
        choices = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
        check_core(self.core)
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise wrong_value(name, " or ".join(map(repr, known)), repr(getattr(self, name)))
        if not 0 <= self.dropout < 1:
            raise wrong_value("dropout", "a probability from 0 to below 1", self.dropout)
        if self.documents == 2 and self.pooling == "none":
            raise wrong_value("pooling", "'mean', 'all' or 'last' for two documents", repr(self.pooling))

    def to_dict(self) -> dict[str, Any]:
        """The content of a saved model's config.json: the version of the format, and all fields."""
        return {"format": FORMAT, **saved_fields(self, LATER)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "ModelConfig":
        """The config from the result of `to_dict`, also of an earlier release.

        Raises:
            ValueError: `saved` has fields or a format that this release does not know.
        """
        fields = dict(saved)
        version = fields.pop("format", 0)  # early releases wrote none
        unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown or not isinstance(version, int) or version > FORMAT:
            names = f", with the unknown fields {', '.join(map(repr, unknown))}" if unknown else ""
            newer = "a newer linrnn may read it: pip install --upgrade linrnn"
            raise ValueError(f"format: expected at most {FORMAT}, got {version!r}{names}; {newer}")
        return cls(**fields)
