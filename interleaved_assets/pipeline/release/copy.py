"""Copy the final tars into the folder of a release, and compare each with its record."""

import shutil
from typing import Final

from interleaved_assets.io.storage import (
    StorageOptions,
    atomic_output,
    file_hashes,
    file_sha256,
    is_local,
    join,
    local_path,
    open_input,
    read_stamp,
    remove_file,
    storage_errors,
)
from interleaved_assets.io.storage.temporary import NO_LINKS
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.release.manifest import ReleasedTar
from interleaved_assets.pipeline.release.verify import compare_file
from interleaved_assets.pipeline.run.record import OutputFile

_BLOCK: Final = 4 * 2**20


def recorded_sha256(key: str, tar: OutputFile, options: StorageOptions) -> str:
    """Return the SHA-256 of a final tar of the shard ``key``, which records lack.

    Raises:
        ShardError: its content is not the recorded one.
    """
    xxh3, sha256 = file_hashes(tar.uri, options)
    if tar.content not in (f"xxh3:{xxh3}", f"sha256:{sha256}"):
        raise _changed(key, tar.uri)
    return sha256


def copy_tar(
    recorded: OutputFile, tar: ReleasedTar, folder: str, options: StorageOptions, source_options: StorageOptions
) -> None:
    """Copy the tar of a record into ``folder``, or link it there, unless it is there already.

    Raises:
        ShardError: the copy has another content than the release states. It is removed.
    """
    source, target = recorded.uri, join(folder, tar.path)
    if compare_file(target, tar.size, tar.sha256, options) is None:
        return  # a killed call, or one at the same time, has copied it
    if is_local(source) and is_local(target) and _link(source, target):
        if recorded.stamp is not None and read_stamp(target) == recorded.stamp:
            return
    else:
        with open_input(source, source_options) as file, atomic_output(target, options) as out:
            shutil.copyfileobj(file, out, _BLOCK)
        if recorded.content == f"xxh3:{out.checksum}":
            return
    if file_sha256(target, options) != tar.sha256:
        remove_file(target, options)
        raise _changed(tar.shard, source, folder)


def _changed(key: str, uri: str, folder: str = "") -> ShardError:
    delete = f"delete {folder} and " if folder else ""
    return ShardError(
        f"shard {key}: {uri} is not what its record says. Materialize final_tars again if it was changed by hand. If a "
        f"run has just replaced it, {delete}make the release again."
    )


def _link(source: str, target: str) -> bool:
    """Link ``target`` to the local file ``source``; return False if the file system cannot.

    Runs replace a tar by another file and never write into it, so the link keeps the content.
    """
    path, origin = local_path(target), local_path(source)
    with storage_errors(target, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a damaged one
        try:
            path.hardlink_to(origin)
        except FileExistsError:  # a call at the same time made it
            return True
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return False
    return True
