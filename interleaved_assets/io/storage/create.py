"""Creation of a file that must not exist yet: of several writers of one path, one succeeds and the others learn it."""

import contextlib
import os
import uuid
from typing import Final

from interleaved_assets.io.storage.atomic import atomic_output
from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    exists,
    filesystem,
    is_local,
    local_path,
    s3_code,
    storage_errors,
)
from interleaved_assets.io.storage.temporary import TemporaryFile

_PRESENT: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
"""Error codes of S3 for an object that exists, or that another request is creating."""


def create_file(uri: str, content: bytes, storage_options: StorageOptions = None) -> bool:
    """Create ``uri`` with ``content``, whole; return False and leave a file that exists there as it is.

    If several processes create the same file at the same moment, one gets True. This holds on local file systems with
    hard links, and in S3 stores that support ``If-None-Match: *`` for writes. Elsewhere the storage is asked for the
    file first, and of two writers within that moment the last one replaces the other's file.
    """
    if is_local(uri):
        with storage_errors(uri, "write"):
            return _create_local(uri, content)
    if "s3" in filesystem(uri, storage_options)[0].protocol:
        return _create_in_s3(uri, content, storage_options)
    if exists(uri, storage_options):
        return False
    with atomic_output(uri, storage_options) as out:
        out.write(content)
    return True


def _create_local(uri: str, content: bytes) -> bool:
    target = local_path(uri)
    if os.path.lexists(target):
        return False
    file = TemporaryFile(target)
    try:
        file.file.write(content)
        return file.create()
    except BaseException:
        file.discard()
        raise


def _create_in_s3(uri: str, content: bytes, storage_options: StorageOptions) -> bool:
    fs, path = filesystem(uri, storage_options)
    writer = uuid.uuid4().hex
    with storage_errors(uri, "write"):
        try:
            fs.pipe_file(path, content, mode="create", Metadata={"writer": writer})
        except OSError as error:
            if s3_code(error) not in _PRESENT:
                raise
            # clients repeat a request whose answer is lost, and the repeated one meets the file of the first
            with contextlib.suppress(FileNotFoundError):
                bucket, key, _ = fs.split_path(path)
                return bool(fs.call_s3("head_object", Bucket=bucket, Key=key)["Metadata"].get("writer") == writer)
            return False
        return True
