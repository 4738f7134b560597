"""Half precision for most of a model's arithmetic, and float32 for the parts where rounding costs most accuracy."""

from typing import Any, Final

import torch
from open_clip.model import convert_weights_to_lp
from open_clip.modified_resnet import ModifiedResNet
from open_clip.transformer import VisionTransformer

HALF_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def compute_in_half(module: Any, device_type: str, dtype: torch.dtype) -> None:
    """Let the parts of ``module`` that do most of its work compute in half precision, by autocast.

    The module, open_clip's in evaluation mode, is changed in place, and must be called outside of autocast. These parts
    stay in float32: the first layer of an image, the sums from block to block, normalizations, the attention of texts,
    the final projections. ``python -m benchmarks.clip_precision`` measures the cost of each part. Weights of the image
    model's parts are stored in ``dtype``.
    """
    image_parts = half_image_parts(module.visual)
    for part in image_parts:
        convert_weights_to_lp(part, dtype)
    for part in (*image_parts, *half_text_parts(module)):
        part.forward = torch.autocast(device_type, dtype=dtype)(part.forward)
        part.register_forward_hook(lambda _part, _given, out: out.float() if isinstance(out, torch.Tensor) else out)


def half_image_parts(visual: Any) -> list[Any]:
    """Return the parts of an image model that compute in half precision; all of it if its architecture is unknown."""
    if isinstance(visual, VisionTransformer):
        # the sums from block to block have the dtype of their input, which is float32
        return [visual.transformer]
    if isinstance(visual, ModifiedResNet):
        # the stem and the first two layers, half of the work of an RN50, round most; so do sums between convolutions
        layers = (visual.layer3, visual.layer4)
        return [part for layer in layers for part in layer.modules() if isinstance(part, torch.nn.Conv2d)]
    return [visual]


def half_text_parts(module: Any) -> list[Any]:
    """Return the parts of a text model that compute in half precision: two thirds of the work, or all of it."""
    text = getattr(module, "text", module)
    blocks = getattr(getattr(text, "transformer", None), "resblocks", None)
    return [text] if blocks is None else [block.mlp for block in blocks]
