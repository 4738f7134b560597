"""The folder of a release while it is written: it takes one content only, and a repeated command continues the work.

The card is created before any other file. It has a checksum of all tars: a call with the same card continues with the
files that a killed call has left, and a call with another one is refused.
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
from interleaved_assets.io.storage.temporary import is_temporary
from interleaved_assets.model.errors import OptionError

CARD_FILE: Final = "README.md"


def begin_folder(folder: str, card: bytes, own: Collection[str], options: StorageOptions, *, is_copy: bool) -> None:
    """Create the card in ``folder``, where the release with these files of its ``own`` is being written.

    With ``is_copy`` the folder must be empty, except for files that a killed call with the same card has left.

    Raises:
        OptionError: another content is being written there, or the folder is not empty.
    """
    place = join(folder, CARD_FILE)
    found = sorted(files_below(folder, options))
    unfinished = [one for one in found if _is_unfinished(one, own)]
    left = [one for one in found if one not in unfinished]
    if is_copy:
        if others := [one for one in left if one not in own]:
            raise OptionError(f"{folder} is not empty, it has {others[0]}; choose an empty folder")
        if left and read_small(place, options) != card:
            raise _of_other_content(folder)
    if not create_file(place, card, options) and read_small(place, options) != card:
        raise _of_other_content(folder)
    for one in unfinished:
        remove_file(join(folder, one), options)


def made_by_another(name: str, place: str) -> OptionError:
    """Return the error for a release that another process has made since this one began."""
    return OptionError(
        f"another process has made release {name} at the same time: {place}. A release is never changed; check that "
        f"one with: interleaved verify {place}"
    )


def _of_other_content(folder: str) -> OptionError:
    return OptionError(
        f"{folder} has an unfinished release of other content: other shards, settings or versions; or files of another "
        f"origin. Choose an empty folder. If it is a release that no other process is making, delete {folder} and "
        "repeat this command."
    )


def _is_unfinished(name: str, own: Collection[str]) -> bool:
    """Return whether ``name`` is a temporary file of one of ``own``, which a killed writer has left."""
    place, _, found = name.rpartition("/")
    finals = (one.rpartition("/") for one in own)
    return any(folder == place and is_temporary(found, final) for folder, _, final in finals)
