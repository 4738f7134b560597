"""The folder of a release while it is written: it takes one content only, and a repeated command continues the work.

``manifest.unfinished.json`` is created before any other file and removed after the last one. It is the manifest that
the folder will have. If it equals the manifest of a later call, that call continues with the files that a killed call
has left. If it differs, the call is refused.
"""

from collections.abc import Collection
from typing import Final

from interleaved_assets.io.storage import (
    StorageOptions,
    create_file,
    files_below,
    join,
    read_small,
    remove_file,
)
from interleaved_assets.io.storage.temporary import is_temporary_of, target_name
from interleaved_assets.model.errors import OptionError
from interleaved_assets.pipeline.release.manifest import MANIFEST_FILE

UNFINISHED_FILE: Final = "manifest.unfinished.json"


def begin_folder(
    name: str, folder: str, content: bytes, options: StorageOptions, *, own: Collection[str], is_copy: bool
) -> bool:
    """Mark ``folder`` as the place where the release with the manifest ``content`` is being written.

    Returns whether the folder has the manifest already, and with it all files. ``own`` are the other files that it will
    have. With ``is_copy`` the folder must be empty, except for files that a killed call with the same content has left.

    Raises:
        OptionError: the folder holds a release, another content is being written there, or it is not empty.
    """
    finals = {*own, MANIFEST_FILE, UNFINISHED_FILE}
    found = sorted(files_below(folder, options))
    unfinished = [one for one in found if _is_unfinished(one, finals)]
    has_manifest = MANIFEST_FILE in found
    if has_manifest and read_small(join(folder, MANIFEST_FILE), options) != content:
        if not is_copy:
            raise made_by_another(name, folder)
        raise OptionError(f"{folder} holds a release already, and another one than this; choose another folder")
    if is_copy:
        is_begun = has_manifest or UNFINISHED_FILE in found
        allowed = {*unfinished, *(finals if is_begun else ())}
        if others := [one for one in found if one not in allowed]:
            raise OptionError(f"{folder} is not empty, it has {others[0]}; choose an empty folder")
    mark = join(folder, UNFINISHED_FILE)
    is_new = create_file(mark, content, options)
    if not is_new and (present := read_small(mark, options)) != content:
        if present is None:
            raise made_by_another(name, folder)
        raise OptionError(
            f"{folder} has an unfinished release of other content: other shards, settings or versions. If no other "
            f"process is making it, delete {folder} and repeat this command."
        )
    if is_new and not has_manifest and read_small(join(folder, MANIFEST_FILE), options) is not None:
        # another process has finished between the first check and the mark
        remove_file(mark, options)
        raise made_by_another(name, folder)
    for one in unfinished:
        remove_file(join(folder, one), options)
    return has_manifest


def end_folder(folder: str, options: StorageOptions) -> None:
    """Remove the mark of :func:`begin_folder`."""
    remove_file(join(folder, UNFINISHED_FILE), options)


def made_by_another(name: str, place: str) -> OptionError:
    """Return the error for a release that another process has made since this one began."""
    return OptionError(
        f"another process has made release {name} at the same time: {place}. A release is never changed; check that "
        f"one with: interleaved verify {place}"
    )


def _is_unfinished(name: str, own: Collection[str]) -> bool:
    """Return whether ``name`` is a temporary file of one of ``own``, which a killed writer has left."""
    place, _, found = name.rpartition("/")
    if target_name(found) is None:
        return False
    ends = (one.rpartition("/")[2] for one in own if one.rpartition("/")[0] == place)
    return any(is_temporary_of(final, found) for final in ends)
