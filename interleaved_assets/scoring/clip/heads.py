"""Heads on CLIP image embeddings: stacks of linear layers that give one number an image.

LAION-Aesthetics V1 (one layer) and V2 (an MLP without activations) are read as published. LAION's NSFW detector is read
as ported to torch, with ``norm.mean`` and ``norm.variance`` before its layers. All were trained on L2-normalised
embeddings, so heads get these. Any other state dict of linear layers works too; a state dict does not contain
activations, so they are settings.
"""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from interleaved_assets.io.storage import StorageOptionsByScheme, local_copy, options_of
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.identity import reason_of, setting_errors
from interleaved_assets.scoring.clip.settings import HeadSettings

_MEAN, _VARIANCE = "norm.mean", "norm.variance"
_FUNCTIONS: Final = {
    "none": torch.nn.Identity,
    "relu": torch.nn.ReLU,
    "gelu": torch.nn.GELU,
    "sigmoid": torch.nn.Sigmoid,
}


def load_head(
    name: str, settings: HeadSettings, width: int, options: StorageOptionsByScheme | None = None
) -> torch.nn.Sequential:
    """Load the head that ``clip.heads.<name>`` describes, for a model whose embeddings have this ``width``.

    It turns embeddings, n x width, float32, L2-normalised, into one number each, n x 1, float32, in a range of its own.

    Raises:
        SettingsError: the file is missing or is not a head, or the head takes embeddings of another width.
        StorageUnavailable: the storage did not answer.
    """
    try:
        copy = local_copy(settings.path, options_of(settings.path, options))
        with setting_errors(f"clip.heads.{name}"), copy as path:
            state = _read_state(path)
        layers = _linear_layers(state, is_ordered=not settings.path.endswith(".safetensors"))
        taken = layers[0].in_features
        mean, deviation = _normalization(state, taken)
    except _NoHead as error:
        raise SettingsError(
            f"clip.heads.{name}: {settings.path} is no head: {error}. It has to be a state dict of linear layers, "
            "<layer>.weight and <layer>.bias, that ends in one output."
        ) from error
    if taken != width:
        raise SettingsError(
            f"clip.heads.{name}: {settings.path} takes embeddings of width {taken}, and the model's have width "
            f"{width}. Choose the head that was trained for this model."
        )
    parts: list[torch.nn.Module] = [layers[0]]
    for layer in layers[1:]:
        parts += _FUNCTIONS[settings.hidden_activation](), layer
    head = torch.nn.Sequential(*parts, _FUNCTIONS[settings.output_squash]()).requires_grad_(False)
    head.register_buffer("mean", mean)
    head.register_buffer("deviation", deviation)
    head.register_forward_pre_hook(lambda head, given: ((given[0] - head.mean) / head.deviation,))
    return head


class _NoHead(Exception):
    """The file is not a head; the text says why."""


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    try:
        is_safe = path.suffix == ".safetensors"
        state: object = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError, SafetensorError) as error:
        raise _NoHead(f"it cannot be read ({reason_of(error)})") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise _NoHead(f"it holds a {type(state).__name__} and no state dict of tensors")
    return dict(state)


def _linear_layers(state: Mapping[str, torch.Tensor], *, is_ordered: bool) -> list[torch.nn.Linear]:
    """Return the layers in order, float32, after checking that they fit each other."""
    names = [key.removesuffix("weight") for key in state if key == "weight" or key.endswith(".weight")]
    known = {f"{name}{part}" for name in names for part in ("weight", "bias")} | {_MEAN, _VARIANCE}
    if unknown := sorted(set(state) - known):
        raise _NoHead(f"it has {unknown[0]!r}, which belongs to no linear layer")
    if not names:
        raise _NoHead("it has no layer")
    # torch keeps the order in which the layers were defined, but safetensors sorts the names, so only numbers can tell
    if not is_ordered and len(names) > 1:
        if not all(re.search(r"\d", name) for name in names):
            raise _NoHead("its layers are not numbered, and safetensors keeps no order of its own; save it as .pth")
        names.sort(key=lambda name: re.sub(r"\d+", lambda number: number[0].zfill(9), name))
    layers: list[torch.nn.Linear] = []
    for name in names:
        weight = state[f"{name}weight"].float()
        if weight.ndim != 2:
            raise _NoHead(f"{name}weight has {weight.ndim} dimensions where a linear layer has 2")
        outputs, inputs = weight.shape
        bias = state.get(f"{name}bias", torch.zeros(outputs)).float()
        if bias.shape != (outputs,):
            raise _NoHead(f"{name}bias has shape {tuple(bias.shape)}, {name}weight {tuple(weight.shape)}")
        if layers and layers[-1].out_features != inputs:
            raise _NoHead(f"{name}weight takes {inputs} values, and the layer before gives {layers[-1].out_features}")
        if not (weight.isfinite().all() and bias.isfinite().all()):
            raise _NoHead(f"{name}weight or {name}bias has values that are not finite")
        layers.append(torch.nn.Linear(inputs, outputs, device="meta"))
        layers[-1].load_state_dict({"weight": weight.contiguous(), "bias": bias.contiguous()}, assign=True)
    if outputs != 1:
        raise _NoHead(f"its last layer gives {outputs} values where one score is wanted")
    return layers


def _normalization(state: Mapping[str, torch.Tensor], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values to subtract from an embedding and to divide it by: 0 and 1 if the head has neither."""
    if (_MEAN in state) != (_VARIANCE in state):
        raise _NoHead(f"it has only one of {_MEAN} and {_VARIANCE}")
    mean = state.get(_MEAN, torch.zeros(width)).float().flatten()
    variance = state.get(_VARIANCE, torch.ones(width)).float().flatten()
    if mean.shape != (width,) or variance.shape != (width,):
        raise _NoHead(f"{_MEAN} has {len(mean)} values, {_VARIANCE} {len(variance)}, and its first layer takes {width}")
    if not (variance > 0).all():
        raise _NoHead(f"{_VARIANCE} has values that are not above 0")
    return mean, variance.sqrt()
