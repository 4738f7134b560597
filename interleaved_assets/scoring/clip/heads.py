"""Heads on CLIP image embeddings: a stack of linear layers that gives one number an image.

What is published comes in these forms, and each is read as it is:

- LAION-Aesthetics V1 (``sa_0_4_vit_*_linear.pth``): one layer, keys ``weight`` and ``bias``;
- LAION-Aesthetics V2 (``sac+logos+ava1-l14-linearMSE.pth``): an MLP, keys ``layers.<n>.weight`` and
  ``layers.<n>.bias``, with dropout but no activation between the layers;
- LAION's CLIP-based NSFW detector as ported to torch (``clip_autokeras_binary_nsfw.pth``): ``norm.mean`` and
  ``norm.variance``, then ``linear_1`` to ``linear_4`` with ReLU between them and a sigmoid behind.

All of them were trained on L2-normalised embeddings, and so is what they are given here. Any other state dict of linear
layers works too; activations are no part of a state dict, so they are settings
(:class:`~interleaved_assets.scoring.clip.settings.HeadSettings`).
"""

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from interleaved_assets.io.storage import StorageOptionsByScheme, local_copy, options_of
from interleaved_assets.model.errors import SettingsError, StorageError, StorageUnavailable
from interleaved_assets.scoring.clip.settings import Activation, HeadSettings, Squash, head_column

_MEAN, _VARIANCE = "norm.mean", "norm.variance"


@dataclass(frozen=True)
class Head:
    """A head that is loaded and fits together.

    Attributes:
        column: the column of the score table it fills.
        layers: weight (out x in) and bias (out) of each layer, float32; the last has one output.
        mean: subtracted from the embedding first, float32 of its width; None where the head has no such layer.
        deviation: what the embedding is divided by then.
    """

    column: str
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    activation: Activation
    output: Squash
    mean: torch.Tensor | None = None
    deviation: torch.Tensor | None = None

    @property
    def width(self) -> int:
        """Width of the embedding that the head takes."""
        return int(self.layers[0][0].shape[1])

    def on(self, device: torch.device) -> "Head":
        """The head with its weights on a device."""
        layers = tuple((weight.to(device), bias.to(device)) for weight, bias in self.layers)
        mean, deviation = (None if part is None else part.to(device) for part in (self.mean, self.deviation))
        return replace(self, layers=layers, mean=mean, deviation=deviation)

    def score(self, embeddings: torch.Tensor) -> torch.Tensor:
        """One number for each embedding; its range is the head's own, 0 to 1 behind a sigmoid.

        Args:
            embeddings: n x width, float32, L2-normalised, on the head's device.

        Returns:
            n numbers, float32, which the device may still be computing.
        """
        values = embeddings
        if self.mean is not None and self.deviation is not None:
            values = (values - self.mean) / self.deviation
        for depth, (weight, bias) in enumerate(self.layers):
            if depth:
                values = _activated(values, self.activation)
            values = torch.nn.functional.linear(values, weight, bias)
        return (torch.sigmoid(values) if self.output == "sigmoid" else values)[:, 0]


def load_head(
    name: str, settings: HeadSettings, width: int | None = None, options: StorageOptionsByScheme | None = None
) -> Head:
    """The head that ``clip.heads.<name>`` describes.

    Args:
        name: the head's name in the settings.
        settings: where it is, and the functions between its layers.
        width: width of the model's embedding, which the head has to take; None: any.
        options: for fsspec, by scheme, where the file is remote.

    Raises:
        SettingsError: the file is missing or no state dict of linear layers, the layers do not fit each other, or the
            head takes embeddings of another width.
        StorageUnavailable: the storage did not answer.
    """
    try:
        with local_copy(settings.path, options_of(settings.path, options)) as path:
            state = _read_state(path)
        layers = _linear_layers(state, is_ordered=not settings.path.endswith(".safetensors"))
        mean, deviation = _normalization(state, int(layers[0][0].shape[1]))
    except StorageUnavailable:
        raise
    except StorageError as error:
        raise SettingsError(f"clip.heads.{name}: {error}") from error
    except _NoHead as error:
        raise SettingsError(
            f"clip.heads.{name}: {settings.path} is no head: {error}. It has to be a state dict of linear layers, "
            "<layer>.weight and <layer>.bias, that ends in one output."
        ) from error
    head = Head(
        column=head_column(name, settings),
        layers=layers,
        activation=settings.hidden_activation,
        output=settings.output_squash,
        mean=mean,
        deviation=deviation,
    )
    if width is not None and head.width != width:
        raise SettingsError(
            f"clip.heads.{name}: {settings.path} takes embeddings of width {head.width}, and the model's have width "
            f"{width}. Choose the head that was trained for this model."
        )
    return head


def _activated(values: torch.Tensor, activation: Activation) -> torch.Tensor:
    match activation:
        case "relu":
            return torch.nn.functional.relu(values)
        case "gelu":
            return torch.nn.functional.gelu(values)
        case "none":
            return values


class _NoHead(Exception):
    """The file is not a head; the text says why."""


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    try:
        state: object = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError, SafetensorError) as error:
        raise _NoHead(f"it cannot be read ({_first_line(error)})") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise _NoHead(f"it holds a {type(state).__name__} and no state dict of tensors")
    return dict(state)


def _linear_layers(
    state: Mapping[str, torch.Tensor], *, is_ordered: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """The layers in order, float32, checked to fit each other."""
    names = [key.removesuffix("weight") for key in state if key == "weight" or key.endswith(".weight")]
    known = {f"{name}{part}" for name in names for part in ("weight", "bias")} | {_MEAN, _VARIANCE}
    if unknown := sorted(set(state) - known):
        raise _NoHead(f"it has {unknown[0]!r}, which belongs to no linear layer")
    if not names:
        raise _NoHead("it has no layer")
    # torch keeps the order in which the layers were defined; safetensors sorts the names, so only numbers can tell
    if not is_ordered and len(names) > 1:
        if not all(re.search(r"\d", name) for name in names):
            raise _NoHead("its layers are not numbered, and safetensors keeps no order of its own; save it as .pth")
        names.sort(key=_natural_key)
    layers: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name in names:
        weight = state[f"{name}weight"].float()
        if weight.ndim != 2:
            raise _NoHead(f"{name}weight has {weight.ndim} dimensions where a linear layer has 2")
        bias = state.get(f"{name}bias", torch.zeros(weight.shape[0])).float()
        if bias.shape != weight.shape[:1]:
            raise _NoHead(f"{name}bias has shape {tuple(bias.shape)}, {name}weight {tuple(weight.shape)}")
        if layers and layers[-1][0].shape[0] != weight.shape[1]:
            raise _NoHead(
                f"{name}weight takes {weight.shape[1]} values, and the layer before gives {len(layers[-1][1])}"
            )
        if not (torch.isfinite(weight).all() and torch.isfinite(bias).all()):
            raise _NoHead(f"{name}weight or {name}bias has values that are not finite")
        layers.append((weight.contiguous(), bias.contiguous()))
    if len(layers[-1][1]) != 1:
        raise _NoHead(f"its last layer gives {len(layers[-1][1])} values where one score is wanted")
    return tuple(layers)


def _normalization(state: Mapping[str, torch.Tensor], width: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if _MEAN not in state and _VARIANCE not in state:
        return None, None
    if _MEAN not in state or _VARIANCE not in state:
        raise _NoHead(f"it has only one of {_MEAN} and {_VARIANCE}")
    mean, variance = state[_MEAN].float().flatten(), state[_VARIANCE].float().flatten()
    if mean.shape != (width,) or variance.shape != (width,):
        raise _NoHead(f"{_MEAN} has {len(mean)} values, {_VARIANCE} {len(variance)}, and its first layer takes {width}")
    if not (variance > 0).all():
        raise _NoHead(f"{_VARIANCE} has values that are not above 0")
    return mean, variance.sqrt()


def _natural_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
