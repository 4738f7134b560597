"""Find the shard files that are named by paths, folders, globs and URLs."""

import glob
from collections.abc import Sequence
from typing import Final, NamedTuple

from interleaved_assets.io.formats.registry import shard_endings
from interleaved_assets.io.storage import exists, find_files, is_local, local_path
from interleaved_assets.model.errors import ErrorPolicy, OptionError, StorageError
from interleaved_assets.model.shown import without_credentials
from interleaved_assets.pipeline.raw.keys import without_key_ending
from interleaved_assets.settings import Settings, StorageSettings

_HIDDEN: Final = ("_", ".")
"""First characters of files and folders that a search leaves out, as other readers of data sets do."""


class ShardFile(NamedTuple):
    """A file to read; size in bytes."""

    uri: str
    size: int
    name: str
    """Its path below the folder or glob that it was found by, or the name of a named file; without the ending of a tar,
    as in keys of shards."""


def find_shard_files(arguments: Sequence[str], storage: StorageSettings) -> list[ShardFile]:
    """Find the files at ``arguments``: files with any ending, and those with an ending of a shard in folders and globs.

    Files and folders below an argument whose names begin with ``_`` or ``.`` are left out. The files are in the order
    of the arguments, without repetitions.
    """
    found: dict[str, ShardFile] = {}
    for argument in arguments:
        if not argument:
            raise OptionError("an input is an empty text: name a file, a folder, a glob or a URL")
        base = _base(argument)
        files = find_files(argument, shard_endings(), storage.options_for(argument))
        # the query of a signed URL is no part of a name
        below = [(file, without_credentials(file.uri).removeprefix(base).strip("/")) for file in files]
        chosen = [
            ShardFile(file.uri, file.size, without_key_ending(name) or name)
            for file, name in below
            # what an argument names is taken, whatever it is called
            if file.uri == base or not any(part.startswith(_HIDDEN) for part in name.split("/"))
        ]
        if not chosen:
            raise StorageError(f"{argument}: the names of all files in it begin with _ or '.': name them one by one")
        for file in chosen:
            own = without_credentials(file.uri).rpartition("/")[2]
            named = file._replace(name=without_key_ending(own) or own) if file.uri == base else file
            found.setdefault(file.uri, named)
    return list(found.values())


def find_shard_file(argument: str, storage: StorageSettings) -> ShardFile:
    """Find the one file at ``argument``; OptionError if there are several."""
    files = find_shard_files([argument], storage)
    if len(files) > 1:
        raise OptionError(f"{argument} is {len(files):,} files: name one of them, such as {files[0].uri}")
    return files[0]


def _base(argument: str) -> str:
    """Return the file or folder that ``argument`` names; for a glob, the folder before its first glob character."""
    uri = str(local_path(argument)) if is_local(argument) else argument.rstrip("/")
    if not glob.has_magic(uri) or (is_local(uri) and exists(uri)):
        return uri
    parts = uri.split("/")
    first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first])


def without_ending(name: str) -> str:
    """Return ``name`` without the ending of a format."""
    ending = next((ending for ending in shard_endings() if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)] or name


def with_policy(settings: Settings, policy: ErrorPolicy | None) -> Settings:
    """Return ``settings`` with another error policy; None keeps theirs."""
    if policy is None:
        return settings
    errors = settings.errors.model_copy(update={"on_materialize_error": policy})
    return settings.model_copy(update={"errors": errors})
