"""Versions of everything that CLIP scores depend on: the settings, and the content of the files that they name.

The module loads no torch. :func:`version_settings` needs the settings alone, :func:`file_versions` reads the files.
"""

import hashlib
import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from interleaved_assets.io.storage import (
    StorageOptions,
    StorageOptionsByScheme,
    file_sha256,
    filesystem,
    is_local,
    local_path,
    options_of,
    storage_errors,
)
from interleaved_assets.model.errors import SettingsError, StorageError, StorageUnavailable
from interleaved_assets.scoring.clip.settings import LOCAL_DIR_PREFIX, ClipSettings

# Raised by hand when a change of this package's code changes embeddings: preprocessing, pooling, normalization.
_EMBEDDING_VERSION: Final = 1
# Names of the bounds of clip.prescreen before they became those of selection: earlier records stay valid.
_FIRST_BOUNDS: Final = (
    *("min_sharpness", "min_sharpness_256", "max_qr_area_ratio", "max_nsfw_score"),
    *("min_aspect_ratio", "max_aspect_ratio", "min_width", "min_height"),
)
# Fields in which a store gives the version of an object, the best first; HTTP servers spell them as headers.
_STAMPS: Final = ("ETag", "etag", "Content-MD5", "Digest", "LastModified", "Last-Modified", "mtime", "created")


def version_settings(settings: ClipSettings) -> dict[str, object]:
    """Return every setting that changes the content of a CLIP score table, without access to storage.

    For a file, it only tells that one is set: :func:`file_versions` covers its content. Device, batch size and number
    of threads are left out, since they change only speed and rounding. ``precision`` and ``resize`` count as they are
    written, so that ``auto`` means the same on every machine.
    """
    heads = {
        column: [name, settings.heads[name].hidden_activation, settings.heads[name].output_squash]
        for column, name in settings.head_columns.items()
    }
    others = {"precision", "resize", "long_text", "keep_embeddings", "max_pixels"}
    # only bounds that are set, so that a new score with a bound does not make CLIP scores stale
    bounds = {**dict.fromkeys(_FIRST_BOUNDS), **settings.prescreen.model_dump(exclude_none=True)}
    return {**_model_facts(settings), "heads": heads, "prescreen": bounds, **settings.model_dump(include=others)}


def _model_facts(settings: ClipSettings) -> dict[str, object]:
    is_folder = settings.model.startswith(LOCAL_DIR_PREFIX)
    return {
        "version": _EMBEDDING_VERSION,
        "model": "folder" if is_folder else settings.model if settings.model_config_path is None else "file",
        "pretrained": "file" if settings.checkpoint else settings.pretrained,
    }


def file_versions(settings: ClipSettings, options: StorageOptionsByScheme | None = None) -> dict[str, str]:
    """Return the version of the content of each file that the settings name, by the setting, such as
    ``clip.pretrained``.

    Raises:
        SettingsError: a file is missing or cannot be read; the message names the setting.
        StorageUnavailable: the storage did not answer.
    """
    versions = {}
    for name, uri in _files(settings):
        with setting_errors(name):
            versions[name] = file_version(uri, options_of(uri, options))
    return versions


def _files(settings: ClipSettings) -> Iterator[tuple[str, str]]:
    if settings.model.startswith(LOCAL_DIR_PREFIX):
        folder = local_path(settings.model.removeprefix(LOCAL_DIR_PREFIX))
        if not folder.is_dir():
            raise SettingsError(f"clip.model: there is no folder {folder}")
        yield from ((f"clip.model/{path.name}", str(path)) for path in sorted(folder.iterdir()) if not path.is_dir())
    if settings.model_config_path is not None:
        yield "clip.model_config_path", settings.model_config_path
    if settings.checkpoint is not None:
        yield "clip.pretrained", settings.checkpoint
    for name, head in sorted(settings.heads.items()):
        yield f"clip.heads.{name}", head.path


@contextmanager
def setting_errors(name: str) -> Iterator[None]:
    """Turn a StorageError, unless it is StorageUnavailable, into a SettingsError that names the setting ``name``."""
    try:
        yield
    except StorageUnavailable:
        raise
    except StorageError as error:
        raise SettingsError(f"{name}: {error}") from error


def reason_of(error: Exception) -> str:
    """Return a library's error in one line; torch lists every key of a state dict, so a long list is cut."""
    return textwrap.shorten(str(error), 300, placeholder=" …") or type(error).__name__


def model_fingerprint(
    settings: ClipSettings, precision: str, resize: str, options: StorageOptionsByScheme | None = None
) -> str:
    """Hash all that an embedding depends on, as 32 hex digits: model and files, arithmetic, scaling of images."""
    files = file_versions(settings.model_copy(update={"heads": {}}), options)
    return _digest([_model_facts(settings), files, precision, resize])


def file_version(uri: str, storage_options: StorageOptions = None) -> str:
    """Hash a file's content; for a file in a store its size and ETag, so that gigabytes need not be fetched."""
    if is_local(uri):
        path = local_path(uri)
        with storage_errors(uri, "read"):
            stat = path.stat()
        return _file_hash(path, stat.st_size, stat.st_mtime_ns)
    with storage_errors(uri, "look at"):
        fs, path_there = filesystem(uri, storage_options)
        fs.invalidate_cache()
        info = fs.info(path_there)
    stamp = next((info[key] for key in _STAMPS if key in info), "")
    return _digest([info.get("size"), str(stamp)])


@lru_cache(maxsize=64)
def _file_hash(path: Path, size: int, modified_ns: int) -> str:  # noqa: ARG001 - a changed stat is a new cache entry
    return file_sha256(str(path))[:32]


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
