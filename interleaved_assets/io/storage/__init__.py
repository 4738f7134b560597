"""Files to read and to write, local or on any filesystem that fsspec knows.

The rest of the package reaches storage through this folder alone. Failures are
:class:`~interleaved_assets.model.errors.StorageError` that name the place and what to do, and
:class:`~interleaved_assets.model.errors.StorageUnavailable` where another try may succeed.
"""

from interleaved_assets.io.storage.atomic import (
    AtomicOutput,
    BytesLike,
    atomic_output,
    clear_leftovers,
)
from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    as_storage_error,
    exists,
    filesystem,
    is_local,
    join,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.inputs import file_sha256, local_copy, open_input, read_small
from interleaved_assets.io.storage.listing import FilePaths, InputFile, dotted, find_files, group_files, parse_size
from interleaved_assets.io.storage.options import StorageOptionsByScheme, options_of
from interleaved_assets.io.storage.roots import check_allowed, folders_of
from interleaved_assets.io.storage.stamps import content_hash, list_stamps, read_stamp

__all__ = [
    "AtomicOutput",
    "BytesLike",
    "FilePaths",
    "InputFile",
    "StorageOptions",
    "StorageOptionsByScheme",
    "as_storage_error",
    "atomic_output",
    "check_allowed",
    "clear_leftovers",
    "content_hash",
    "dotted",
    "exists",
    "file_sha256",
    "filesystem",
    "find_files",
    "folders_of",
    "group_files",
    "is_local",
    "join",
    "list_stamps",
    "local_copy",
    "local_path",
    "open_input",
    "options_of",
    "parse_size",
    "read_small",
    "read_stamp",
    "storage_errors",
]
