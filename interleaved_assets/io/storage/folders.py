"""The files directly in one folder: their list, and the removal of those that are not wanted any more."""

from collections.abc import Callable, Collection

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    filesystem,
    join,
    remove_file,
    storage_errors,
)
from interleaved_assets.io.storage.temporary import target_name


def files_in(folder: str, storage_options: StorageOptions = None) -> dict[str, int]:
    """Return name and size in bytes of each file directly in ``folder``, sorted by name; empty for a missing folder.

    Raises:
        StorageError: it cannot be listed.
    """
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage_options)
        fs.invalidate_cache(path)
        try:
            found = fs.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        start = path.rstrip("/") + "/"
        # for a path without a folder, an object store lists the object at the path itself
        files = {info["name"]: info for info in found if info["type"] != "directory" and info["name"].startswith(start)}
        return {name[len(start) :]: int(files[name]["size"] or 0) for name in sorted(files)}


def remove_others(
    folder: str, is_own: Callable[[str], bool], keep: Collection[str], storage_options: StorageOptions = None
) -> list[str]:
    """Remove the files directly in ``folder`` whose name ``is_own`` and not in ``keep``; return their names.

    Temporary files of such names are removed too, also those of live writers, which fail when they commit.

    Raises:
        StorageError: the folder cannot be listed, or a file cannot be removed.
    """
    removed = []
    for name in files_in(folder, storage_options):
        final = target_name(name)
        if is_own(final or name) and name not in keep:
            remove_file(join(folder, name), storage_options)
            if final is None:
                removed.append(name)
    return removed
