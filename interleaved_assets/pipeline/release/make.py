"""Make a release of the current final tars: manifest, index and card, and on request a copy of the tars."""

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, TypeVar

from interleaved_assets.io.storage import (
    StorageOptions,
    atomic_output,
    check_output,
    create_file,
    exists,
    files_below,
    is_local,
    is_within,
    join,
    local_path,
    read_small,
    remove_file,
)
from interleaved_assets.io.storage.temporary import is_temporary
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.release.card import data_set_card
from interleaved_assets.pipeline.release.contents import (
    duplicates_error,
    make_manifest,
    others_error,
    same_documents,
    tars_of,
    wids_index,
)
from interleaved_assets.pipeline.release.copy import copy_tar, recorded_sha256
from interleaved_assets.pipeline.release.documents import documents_files, write_documents
from interleaved_assets.pipeline.release.found_values import values_of_shard
from interleaved_assets.pipeline.release.manifest import MANIFEST_FILE, Manifest, release_folder
from interleaved_assets.pipeline.release.verify import verify_release
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus, ShardState, read_dataset_status
from interleaved_assets.pipeline.status.status import COMPLETE
from interleaved_assets.settings import Settings, StorageSettings

INDEX_FILE: Final = "wids.json"
CARD_FILE: Final = "README.md"
_COPIERS: Final = 4
_WRITERS: Final = 2
"""Threads that write documents; each holds about 200 MB."""


Watch = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Called with the name and the number of the items; the function that its context gives is called after each item."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Release(NamedTuple):
    """A release that was written."""

    manifest: Manifest
    uri: str
    """URI of its manifest below the output root."""
    folder: str
    """The folder with its index and its card, and with its tars if they were copied."""


def make_release(
    name: str,
    settings: Settings,
    *,
    to: str | None = None,
    documents: bool = False,
    incomplete: bool = False,
    allow_duplicates: bool = False,
    watch: Watch | None = None,
) -> Release:
    """Write the release ``name`` of the final tars of all current shards.

    Below the output root it is ``releases/<name>/`` with ``manifest.json``, ``wids.json`` and ``README.md``; the tars
    stay where they are, and a later run may replace them. With ``to`` these three files and the tars are written into
    that folder, and ``releases/<name>/manifest.json`` names it. The manifest is written last: without it there is no
    release.

    A call that ended early, or whose process was killed, is repeated with the same arguments: it continues with the
    files that are there, of which the card is the first. If several calls make one release, or write to one folder, at
    the same time, one succeeds, provided that the storage supports it (see
    :func:`~interleaved_assets.io.storage.create_file`).

    Args:
        name: 1 to 100 letters, digits, ``.``, ``_`` and ``-``.
        to: an empty folder or URL outside both roots; local tars are linked (hard links) if the file system allows it.
        documents: whether to write the documents as Parquet too, for ``datasets.load_dataset``; needs ``to``.
        incomplete: whether to leave out shards that are not current, instead of refusing.
        allow_duplicates: whether to release shards with the same documents, instead of refusing; the manifest names
            them.
        watch: shows the progress of each part of the work.

    Raises:
        OptionError: ``name`` or ``to`` cannot be used, ``documents`` is given without ``to``, the release exists or
            another process has just made it, no shard is current, some are not and ``incomplete`` is not given, or
            shards have the same documents and ``allow_duplicates`` is not given.
        ShardError: a tar differs from its record.
    """
    place = release_folder(name, settings.storage.output_root)
    if documents and to is None:
        raise OptionError(
            "documents are written from tars that no run changes: give a folder for a copy of them too, as in "
            f"interleaved release {name} --to FOLDER --documents"
        )
    manifest_at = join(place, MANIFEST_FILE)
    folder = place if to is None else _checked_folder(to, settings.storage)
    options = settings.storage.options if to is None else settings.storage.options_for(folder)
    if exists(manifest_at, settings.storage.options):
        raise OptionError(f"release {name} exists: {manifest_at}. A release is never changed; choose another name.")
    dataset = read_dataset_status(settings)
    shards, left_out = _current_shards(dataset, watch, incomplete=incomplete)
    duplicates = same_documents(shards)
    if duplicates and not allow_duplicates:
        raise duplicates_error(duplicates)
    storage = settings.storage
    values = _watched(
        watch, "reading shards", lambda shard: values_of_shard(storage.shard(shard.key), shard.records), shards, READERS
    )
    # the tars are named by their path below the output root, also in a copy
    above = "" if to is not None else "../../"
    tars = [(shard, tar) for shard in shards for tar in tars_of(shard).values()]
    hashes = _watched(
        watch, "hashing tars", lambda tar: recorded_sha256(tar[0].key, tar[1], storage.options), tars, _COPIERS
    )
    manifest = make_manifest(name, shards, hashes, left_out, duplicates, values, dataset.stages, settings, above)
    index = wids_index(manifest).encode()
    manifest = manifest.model_copy(update={"files": {INDEX_FILE: hashlib.sha256(index).hexdigest()}}).sealed()
    release = Release(
        manifest if to is None else manifest.model_copy(update={"folder": folder}).sealed(), manifest_at, folder
    )
    present = None if to is None else read_small(join(folder, MANIFEST_FILE), options)
    if present not in (None, _json(manifest)):
        raise OptionError(f"{folder} holds a release already, and another one than this; choose another folder")
    own = {CARD_FILE, INDEX_FILE, MANIFEST_FILE, *(tar.path for tar in manifest.tars)}
    if documents:
        own |= {*documents_files(manifest)}
    _begin_folder(folder, data_set_card(manifest, documents=documents).encode(), own, options, is_copy=to is not None)
    if present:
        _check_finished(manifest, folder, settings.storage)
    else:
        if to is not None:
            pairs = list(zip((tar for _, tar in tars), manifest.tars, strict=True))
            _watched(
                watch, "copying tars", lambda pair: copy_tar(*pair, folder, options, storage.options), pairs, _COPIERS
            )
        if documents:
            files = list(zip(manifest.tars, documents_files(manifest), strict=True))
            _watched(watch, "writing documents", lambda file: write_documents(*file, folder, options), files, _WRITERS)
        with atomic_output(join(folder, INDEX_FILE), options) as out:
            out.write(index)
        if not create_file(join(folder, MANIFEST_FILE), _json(manifest), options):
            raise _made_by_another(name, folder)
    if to is not None and not create_file(manifest_at, _json(release.manifest), settings.storage.options):
        raise _made_by_another(name, place)
    return release


def _current_shards(
    dataset: DatasetStatus, watch: Watch | None, *, incomplete: bool
) -> tuple[list[ShardState], dict[str, str]]:
    """Return the current shards, and by key the reason why each other shard is left out."""
    if dataset.problem:
        raise StorageError(f"no release without a look at the raw shards: {dataset.problem}")
    found = _watched(watch, "comparing shards", dataset.look, dataset.keys, READERS)
    if refused := next((shard.error for shard in found if isinstance(shard.error, StorageError)), None):
        raise refused
    current = [shard for shard in found if shard.status == COMPLETE]
    others = {shard.key: shard.status.text for shard in found if shard.status != COMPLETE}
    if others and not incomplete:
        raise others_error(others, len(found))
    if not current:
        raise OptionError(f"no shard below {dataset.storage.output_root} is current: there is nothing to release")
    return current, others


def _check_finished(manifest: Manifest, folder: str, storage: StorageSettings) -> None:
    """Refuse a folder with this manifest whose files have changed since."""
    uri = join(folder, MANIFEST_FILE)
    for finding in verify_release(manifest, uri, storage.options_by_scheme()):
        if finding is not None:
            raise StorageError(
                f"{folder} has the manifest of this release, but {finding.code}: {finding.uri}: {finding.detail}. "
                f"Delete {folder} and make the release again."
            )


def _watched(
    watch: Watch | None, what: str, work: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Return ``work`` of each of ``items``, done in parallel and counted by ``watch``."""
    found = []
    with watch(what, len(items)) if watch else nullcontext(lambda: None) as advance:
        for result in parallel_map(work, items, threads=threads):
            advance()
            found.append(result)
    return found


def _checked_folder(to: str, storage: StorageSettings) -> str:
    folder = (str(local_path(to)) if is_local(to) else to).rstrip("/")
    if not folder or folder.endswith(":"):
        raise OptionError(f"a release cannot be copied to {to}: choose an empty folder below it")
    check_output(join(folder, MANIFEST_FILE))
    for root in (storage.raw_root, storage.output_root):
        if is_within(folder, root):
            raise OptionError(f"a release cannot be copied to {folder}: choose a folder outside {root}")
    return folder


def _begin_folder(folder: str, card: bytes, own: Collection[str], options: StorageOptions, *, is_copy: bool) -> None:
    """Create the card in ``folder``, where the release with these files of its ``own`` is being written.

    The card is created before any other file. It has a checksum of all tars: a call with the same card continues with
    the files that a killed call has left, and a call with another one is refused. With ``is_copy`` the folder must hold
    no other files.

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


def _made_by_another(name: str, place: str) -> OptionError:
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


def _json(manifest: Manifest) -> bytes:
    return (json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n").encode()
