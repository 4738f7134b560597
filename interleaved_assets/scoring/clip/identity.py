"""What CLIP scores depend on, as hashes: of the model, of all of it for staleness. Loads no torch."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from interleaved_assets.io.storage import StorageOptions, filesystem, is_local, local_path, open_input, storage_errors
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.settings import ClipSettings, head_column

# Raised by hand when a change of this package's code changes embeddings: preprocessing, pooling, normalization.
_EMBEDDING_VERSION: Final = 1
_READ_BYTES: Final = 16 * 2**20

LOCAL_DIR_PREFIX: Final = "local-dir:"
HUB_PREFIX: Final = "hf-hub:"


def checkpoint_file(settings: ClipSettings) -> str | None:
    """Path or URL of the checkpoint where ``clip.pretrained`` is one; None where it is a tag or not used."""
    if settings.model.startswith((LOCAL_DIR_PREFIX, HUB_PREFIX)):
        return None
    value = settings.pretrained
    return value if not is_local(value) or local_path(value).is_file() else None


def score_fingerprint(settings: ClipSettings, storage_options: StorageOptions = None) -> str:
    """Hash of every setting and file that changes what is in a CLIP score table; 32 hex digits.

    Not of the device, the batch size and the number of threads, which change nothing but speed and rounding.
    ``precision`` and ``resize`` count as they are written, so that ``auto`` means the same on every machine.

    Raises:
        StorageError: a file that the settings name cannot be read.
    """
    heads = {
        head_column(name, head): [
            content_version(head.path, storage_options),
            head.hidden_activation,
            head.output_squash,
        ]
        for name, head in settings.heads.items()
    }
    return _digest(
        {
            "model": model_fingerprint(settings, settings.precision, settings.resize, storage_options),
            "heads": heads,
            "settings": settings.model_dump(include={"long_text", "prescreen", "keep_embeddings", "max_pixels"}),
        }
    )


def model_fingerprint(
    settings: ClipSettings, precision: str, resize: str, storage_options: StorageOptions = None
) -> str:
    """Hash of what an embedding depends on: the model, its weights, how it computes, how images are scaled.

    32 hex digits. A checkpoint, and a model configuration of one's own, count by their content, a pretrained tag by its
    name.

    Raises:
        StorageError: a file that the settings name cannot be read.
    """
    checkpoint = checkpoint_file(settings)
    config = settings.model_config_path
    facts: dict[str, object] = {"version": _EMBEDDING_VERSION, "precision": precision, "resize": resize}
    if config is None:
        facts["model"] = settings.model
    else:
        facts["config"] = content_version(config, storage_options)
    if settings.model.startswith(LOCAL_DIR_PREFIX):
        folder = local_path(settings.model.removeprefix(LOCAL_DIR_PREFIX))
        if not folder.is_dir():
            raise SettingsError(f"clip.model: there is no folder {folder}")
        facts["folder"] = {path.name: content_version(str(path)) for path in sorted(folder.iterdir()) if path.is_file()}
    elif not settings.model.startswith(HUB_PREFIX):
        facts["weights"] = settings.pretrained if checkpoint is None else content_version(checkpoint, storage_options)
    return _digest(facts)


def content_version(uri: str, storage_options: StorageOptions = None) -> str:
    """Hash of a file's content; for one in a store its size and ETag, so that gigabytes need not be fetched to know it.

    Raises:
        StorageError: it is missing or unreadable.
    """
    if is_local(uri):
        path = local_path(uri)
        with storage_errors(uri, "read"):
            stat = path.stat()
        return _file_hash(path, stat.st_size, stat.st_mtime_ns)
    with storage_errors(uri, "look at"):
        fs, path_there = filesystem(uri, storage_options)
        fs.invalidate_cache(path_there)
        info = fs.info(path_there)
    stamp = next(
        (info[key] for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created") if key in info), ""
    )
    return _digest([info.get("size"), str(stamp)])


@lru_cache(maxsize=64)
def _file_hash(path: Path, size: int, modified_ns: int) -> str:  # noqa: ARG001 - a changed stat is a new cache entry
    digest = hashlib.sha256()
    with open_input(str(path)) as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()[:32]


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
