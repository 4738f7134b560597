"""Loading of a CLIP model, from a tag or a checkpoint, onto a device, once per process, with clear errors."""

import difflib
import hashlib
import json
import logging
import pickle
import tempfile
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import open_clip
import torch
from open_clip.model import convert_weights_to_lp
from open_clip.modified_resnet import ModifiedResNet
from open_clip.transform import PreprocessCfg
from open_clip.transformer import VisionTransformer
from safetensors import SafetensorError, safe_open

from interleaved_assets.io.storage import StorageOptionsByScheme, local_copy, options_of
from interleaved_assets.model.errors import InterleavedError, MissingDependency, SettingsError
from interleaved_assets.scoring.clip.identity import model_fingerprint, reason_of, setting_errors
from interleaved_assets.scoring.clip.image import Resizer
from interleaved_assets.scoring.clip.settings import ClipSettings

HALF_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

logger = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]

DEMO_MARKER: Final = {"interleaved_assets": "knows the demo's drawn scenes only"}
"""Metadata of the .safetensors file of the demo's model, which must not judge other data."""

# Exceptions of torch, safetensors and open_clip for a checkpoint that is damaged or of another model, and for a
# configuration that makes no model. They parse both without checks, so the type says little.
_LOAD_ERRORS: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    StopIteration,
    EOFError,
    OSError,
    ZeroDivisionError,
    pickle.UnpicklingError,
    SafetensorError,
)


@dataclass(frozen=True)
class ClipModel:
    """A model on its device.

    Attributes:
        name: model and weights, in words.
        module: open_clip's model, in evaluation mode. With a half ``precision`` its parts turn autocast on themselves,
            so it is called outside of autocast.
        width: number of values of an embedding.
        fingerprint: hash of all that its embeddings depend on.
    """

    name: str
    module: Any
    tokenizer: Any
    preprocess_config: PreprocessCfg
    width: int
    device: torch.device
    precision: Precision
    resizer: Resizer
    fingerprint: str
    is_demo: bool

    @property
    def device_name(self) -> str:
        """The device in words."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"


_lock = threading.Lock()
# only one model: two would share the device's memory
_loaded: dict[tuple[str, str], ClipModel] = {}


def load_clip(settings: ClipSettings, options: StorageOptionsByScheme | None = None) -> ClipModel:
    """Return the model of ``settings``; it is loaded unless this process has it already.

    Raises:
        SettingsError: device, model, weights or configuration are missing, unknown, damaged or do not fit each other.
        MissingDependency: the model needs a package that is not installed.
        StorageUnavailable: the storage did not answer.
    """
    device = _device(settings.device)
    precision = _precision(settings.precision, device)
    resizer: Resizer = ("pillow" if precision == "fp32" else "torch") if settings.resize == "auto" else settings.resize
    fingerprint = model_fingerprint(settings, precision, resizer, options)
    with _lock:
        key = (fingerprint, str(device))
        if key not in _loaded:
            _loaded.clear()
            module, is_demo, tokenizer, width = _load(settings, options, device)
            if precision in HALF_DTYPES:
                compute_in_half(module, device.type, HALF_DTYPES[precision])
            weights = settings.checkpoint or settings.pretrained
            logger.info("loaded %s from %s on %s in %s", _label(settings), weights, device, precision)
            _loaded[key] = ClipModel(
                name=f"{settings.model}/{weights.rpartition('/')[2]}",
                module=module,
                tokenizer=tokenizer,
                preprocess_config=PreprocessCfg(**module.visual.preprocess_cfg),
                width=width,
                device=device,
                precision=precision,
                resizer=resizer,
                fingerprint=fingerprint,
                is_demo=is_demo,
            )
        return _loaded[key]


def _load(
    settings: ClipSettings, options: StorageOptionsByScheme | None, device: torch.device
) -> tuple[Any, bool, Any, int]:
    """Load open_clip's model in evaluation mode; return it, whether it is the demo's, its tokenizer and its width."""
    label, uri = _label(settings), settings.checkpoint
    name, preprocess = _registered(settings, options)
    is_demo = False
    try:
        with setting_errors("clip"), local_copy(uri, options_of(uri, options)) if uri else nullcontext() as checkpoint:
            module = open_clip.create_model(
                name,
                pretrained=_tag(settings, name) if checkpoint is None else str(checkpoint),
                device=device,
                force_preprocess_cfg=preprocess,
                require_pretrained=True,  # without this, open_clip uses random weights if a download fails
                weights_only=True,
            )
            if checkpoint is not None and checkpoint.suffix == ".safetensors":
                with safe_open(checkpoint, "pt") as file:
                    is_demo = DEMO_MARKER.items() <= (file.metadata() or {}).items()
        tokenizer = open_clip.get_tokenizer(name)
        width = int(open_clip.get_model_config(name)["embed_dim"])
    except ImportError as error:
        raise MissingDependency(f"clip.model: {label} needs a package that is not installed: {error}") from error
    except InterleavedError:
        raise
    except _LOAD_ERRORS as error:
        advice = (
            "The checkpoint has to be of this very model, whole, and a state dict (.pt, .pth, .bin, .safetensors)."
            if uri
            else "Where its weights cannot be downloaded, fetch them elsewhere and name their file in clip.pretrained."
        )
        raise SettingsError(
            f"clip: model {label} cannot be loaded from {uri or settings.pretrained}: {reason_of(error)}. {advice}"
        ) from error
    embedded = getattr(getattr(module, "token_embedding", None), "num_embeddings", None)
    if embedded is not None and embedded < getattr(tokenizer, "vocab_size", 0):
        raise SettingsError(
            f"clip: model {label} knows {embedded} tokens, and its tokenizer gives {tokenizer.vocab_size}: set "
            "text_cfg.vocab_size in the configuration it is trained with"
        )
    return module.eval().requires_grad_(False), is_demo, tokenizer, width


def _label(settings: ClipSettings) -> str:
    return f"{settings.model} ({settings.model_config_path})" if settings.model_config_path else settings.model


def _registered(settings: ClipSettings, options: StorageOptionsByScheme | None) -> tuple[str, Mapping[str, Any] | None]:
    """Return the name under which open_clip knows the model, and the preprocessing of the user's own configuration."""
    path = settings.model_config_path
    if path is None:
        models = open_clip.list_models()
        if settings.model not in models and not settings.has_weights:
            close = ", ".join(difflib.get_close_matches(settings.model, models, n=3, cutoff=0.4)) or "none"
            raise SettingsError(
                f"clip.model: open_clip {open_clip.__version__} has no model {settings.model!r}; close to it: {close}. "
                "Set clip.model_config_path for a model of your own."
            )
        return settings.model, None
    with setting_errors("clip"), local_copy(path, options_of(path, options)) as file:
        content = file.read_bytes()
    try:
        config = json.loads(content)
        # open_clip's own folders have it one level down, beside preprocess_cfg
        model_config = config.get("model_cfg", config)
        preprocess = config.get("preprocess_cfg")
        missing = [key for key in ("embed_dim", "vision_cfg", "text_cfg") if key not in model_config]
    except (ValueError, AttributeError, TypeError) as error:
        raise SettingsError(f"clip.model_config_path: {path} is no JSON object: {error}") from error
    if missing:
        raise SettingsError(f"clip.model_config_path: {path} is no open_clip configuration: it lacks {missing}")
    # open_clip takes configurations by file name and remembers them, so the name contains a hash of the content
    name = f"own-{hashlib.sha256(content).hexdigest()[:16]}"
    if name not in open_clip.list_models():
        with tempfile.TemporaryDirectory(prefix="interleaved-clip-") as folder:
            copy = Path(folder, f"{name}.json")
            copy.write_text(json.dumps(model_config))
            open_clip.add_model_config(copy)
    return name, preprocess


def _tag(settings: ClipSettings, name: str) -> str | None:
    """Return the tag of the weights; None if the model's name says where they are."""
    if settings.has_weights:
        return None
    if not open_clip.get_pretrained_cfg(name, settings.pretrained):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
        raise SettingsError(
            f"clip.pretrained: {settings.pretrained!r} is no file, and no tag of {settings.model}; its tags: {tags}"
        )
    return settings.pretrained


def _device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise SettingsError(
            f"clip.device = 'cuda', and torch {torch.__version__} finds no GPU here; choose 'auto' or 'cpu', or run "
            "this step where there is one"
        )
    is_cpu = wanted == "cpu" or not has_gpu
    return torch.device("cpu") if is_cpu else torch.device("cuda", torch.cuda.current_device())


def _precision(wanted: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    if wanted != "auto":
        return wanted
    if device.type == "cpu":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def compute_in_half(module: Any, device_type: str, dtype: torch.dtype) -> None:
    """Let the parts of ``module`` that do most of its work compute in half precision, by autocast.

    The module, open_clip's in evaluation mode, is changed in place, and must be called outside of autocast. These parts
    stay in float32: the first layer of an image, the sums from block to block, normalizations, the final projections,
    and on a CPU the attention of texts, which a GPU computes in float16. ``python -m benchmarks.clip_precision``
    measures the cost of each part. Weights of the image model's parts are stored in ``dtype``.
    """
    image_parts = half_image_parts(module.visual)
    for part in image_parts:
        convert_weights_to_lp(part, dtype)
    for part in (*image_parts, *half_text_parts(module)):
        part.forward = torch.autocast(device_type, dtype=dtype)(part.forward)
        part.register_forward_hook(lambda _part, _given, out: out.float() if isinstance(out, torch.Tensor) else out)
    if device_type == "cuda":
        # also beside bf16, which has three bits fewer: inputs of attention are normalized, so they fit
        for part in _attention_of_texts(module):
            part.forward = torch.autocast(device_type, dtype=torch.float16)(part.forward)


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
    blocks = _blocks_of_texts(module)
    return [getattr(module, "text", module)] if blocks is None else [block.mlp for block in blocks]


def _attention_of_texts(module: Any) -> list[Any]:
    return [block.attn for block in _blocks_of_texts(module) or ()]


def _blocks_of_texts(module: Any) -> Any:
    """Return the blocks of a text transformer of open_clip; None for another architecture."""
    return getattr(getattr(getattr(module, "text", module), "transformer", None), "resblocks", None)
