"""The demo's CLIP model knows drawn scenes alone: a marker in its file keeps it from judging any other data."""

import json
from collections.abc import Callable
from typing import Final

from interleaved_assets.io.storage import StorageOptionsByScheme, open_input, options_of
from interleaved_assets.model.errors import SettingsError, StorageError, StorageUnavailable
from interleaved_assets.scoring.clip.identity import checkpoint_file
from interleaved_assets.scoring.clip.settings import ClipSettings

DEMO_MARKER: Final = {"interleaved_assets": "knows the demo's drawn scenes only"}
"""Metadata of the model's .safetensors file."""

_LONGEST_HEADER: Final = 16 * 2**20


def refuse_demo_model(
    settings: ClipSettings, is_demo_data: Callable[[], bool], options: StorageOptionsByScheme | None = None
) -> None:
    """Raise where the model is the demo's, the data is not, and ``clip.allow_demo_model`` is not set.

    Args:
        settings: which model.
        is_demo_data: asked only where the model is the demo's.
        options: fsspec options by URL scheme, where the checkpoint is remote.

    Raises:
        SettingsError: with what to set instead.
        StorageUnavailable: the storage did not answer.
    """
    if settings.allow_demo_model or not _is_demo_model(settings, options) or is_demo_data():
        return
    raise SettingsError(
        f"clip.pretrained = {settings.pretrained!r} is the demo's model, which knows the demo's drawn scenes only and "
        "would drop nearly every image of other data. Set clip.model and clip.pretrained to a model for your data "
        "(such as model = 'ViT-L-14-quickgelu', pretrained = 'openai', and no model_config_path), or "
        "clip.enabled = false, or clip.allow_demo_model = true to use it all the same."
    )


def _is_demo_model(settings: ClipSettings, options: StorageOptionsByScheme | None) -> bool:
    uri = checkpoint_file(settings)
    if uri is None or not uri.endswith(".safetensors"):
        return False
    try:
        with open_input(uri, options_of(uri, options)) as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _LONGEST_HEADER)))
    except StorageUnavailable:
        raise
    except (StorageError, ValueError):
        # missing or damaged: loading the model says so, and what to do
        return False
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return isinstance(metadata, dict) and DEMO_MARKER.items() <= metadata.items()
