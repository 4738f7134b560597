"""Read, write and list files, local or on any filesystem of fsspec.

The rest of the package accesses storage only through this folder. Failures raise
:class:`~interleaved_assets.model.errors.StorageError`, which names the path and what to do, or
:class:`~interleaved_assets.model.errors.StorageUnavailable` if a retry may succeed.
"""

from interleaved_assets.io.storage.atomic import AtomicOutput, BytesLike, atomic_output, clear_leftovers
from interleaved_assets.io.storage.create import create_file
from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    as_storage_error,
    exists,
    file_info,
    filesystem,
    is_local,
    join,
    local_path,
    remove_file,
    storage_errors,
)
from interleaved_assets.io.storage.folders import files_in, remove_others
from interleaved_assets.io.storage.inputs import (
    file_sha256,
    local_copy,
    open_input,
    read_small,
    scratch_errors,
    scratch_file,
)
from interleaved_assets.io.storage.listing import FilePaths, InputFile, dotted, find_files, group_files, parse_size
from interleaved_assets.io.storage.local import check_name, displayable
from interleaved_assets.io.storage.options import StorageOptionsByScheme, options_of
from interleaved_assets.io.storage.pins import pin, unpin
from interleaved_assets.io.storage.roots import check_allowed, folders_of
from interleaved_assets.io.storage.stamps import content_hash, etag_stamp, find_stamps, list_stamps, read_stamp
from interleaved_assets.io.storage.walk import files_below, find_files_below, find_infos
from interleaved_assets.io.storage.warm import keep_copies

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
    "check_name",
    "clear_leftovers",
    "content_hash",
    "create_file",
    "displayable",
    "dotted",
    "etag_stamp",
    "exists",
    "file_info",
    "file_sha256",
    "files_below",
    "files_in",
    "filesystem",
    "find_files",
    "find_files_below",
    "find_infos",
    "find_stamps",
    "folders_of",
    "group_files",
    "is_local",
    "join",
    "keep_copies",
    "list_stamps",
    "local_copy",
    "local_path",
    "open_input",
    "options_of",
    "parse_size",
    "pin",
    "read_small",
    "read_stamp",
    "remove_file",
    "remove_others",
    "scratch_errors",
    "scratch_file",
    "storage_errors",
    "unpin",
]
