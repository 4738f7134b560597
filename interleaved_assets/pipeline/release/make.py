"""Make a release of the current final tars: manifest, index and card, and on request a copy of the tars."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from typing import Final, NamedTuple, TypeVar

from interleaved_assets.io.storage import (
    StorageOptions,
    atomic_output,
    check_output,
    create_file,
    exists,
    file_hashes,
    file_sha256,
    is_local,
    join,
    local_path,
    open_input,
    read_small,
    read_stamp,
    remove_file,
    storage_errors,
)
from interleaved_assets.io.storage.temporary import NO_LINKS
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.release.card import data_set_card
from interleaved_assets.pipeline.release.documents import documents_files, write_documents
from interleaved_assets.pipeline.release.folder import CARD_FILE, begin_folder, made_by_another
from interleaved_assets.pipeline.release.found_values import Counted, licences_and_sources, values_of_shard
from interleaved_assets.pipeline.release.manifest import MANIFEST_FILE, Manifest, ReleasedTar, release_folder
from interleaved_assets.pipeline.release.verify import compare_file, verify_release
from interleaved_assets.pipeline.run.record import Counts, OutputFile
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, NORMALIZED
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus, ShardState, read_dataset_status
from interleaved_assets.pipeline.status.status import COMPLETE, CurrentStages
from interleaved_assets.settings import Settings, StorageSettings

INDEX_FILE: Final = "wids.json"
_COPIERS: Final = 4
_WRITERS: Final = 2
"""Threads that write documents; each holds about 200 MB."""
_BLOCK: Final = 4 * 2**20
_SHARDS_NAMED: Final = 10
_PACKAGES: Final = ("interleaved-assets", "numpy", "opencv-python-headless", "pillow", "pyarrow", "webdataset")


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
    duplicates = _same_documents(shards)
    if duplicates and not allow_duplicates:
        raise _has_duplicates(duplicates)
    storage = settings.storage
    values = _watched(
        watch, "reading shards", lambda shard: values_of_shard(storage.shard(shard.key), shard.records), shards, READERS
    )
    # the tars are named by their path below the output root, also in a copy
    above = "" if to is not None else "../../"
    tars = [(shard, tar) for shard in shards for tar in _tars_of(shard).values()]
    hashes = _watched(watch, "hashing tars", lambda tar: _sha256(*tar, storage), tars, _COPIERS)
    manifest = _manifest(name, shards, hashes, left_out, duplicates, values, dataset.stages, settings, above)
    index = _index(manifest).encode()
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
    begin_folder(folder, data_set_card(manifest, documents=documents).encode(), own, options, is_copy=to is not None)
    if present:
        _check_finished(manifest, folder, settings.storage)
    else:
        if to is not None:
            _copy_tars(shards, manifest, settings.storage, folder, options, watch)
        if documents:
            _write_documents(manifest, folder, options, watch)
        with atomic_output(join(folder, INDEX_FILE), options) as out:
            out.write(index)
        if not create_file(join(folder, MANIFEST_FILE), _json(manifest), options):
            raise made_by_another(name, folder)
    if to is not None and not create_file(manifest_at, _json(release.manifest), settings.storage.options):
        raise made_by_another(name, place)
    return release


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
        named = [f"  {key}: {why}" for key, why in list(others.items())[:_SHARDS_NAMED]]
        if len(others) > len(named):
            named.append(f"  and {len(others) - len(named):,} more: interleaved status")
        raise OptionError(
            f"{len(others):,} of {len(found):,} shards are not current. Materialize them, or leave them out with "
            "--incomplete:\n" + "\n".join(named)
        )
    if not current:
        raise OptionError(f"no shard below {dataset.storage.output_root} is current: there is nothing to release")
    return current, others


def _same_documents(shards: Iterable[ShardState]) -> list[list[str]]:
    """Return sorted groups of shard keys that have a final tar with the same bytes, and so the same documents.

    A final tar does not name its raw shard, so a renamed or compressed copy of a raw shard gives the same final tar.
    """
    by_content: dict[str, list[str]] = {}
    for shard in shards:
        for role, tar in _tars_of(shard).items():
            if _counts_of(shard, role).samples:  # all tars without documents have the same bytes
                by_content.setdefault(tar.content, []).append(shard.key)
    # equal shards that are split have equal parts, so their group is found once for each part
    groups = {tuple(sorted(keys)) for keys in by_content.values() if len(keys) > 1}
    return [list(keys) for keys in sorted(groups)]


def _has_duplicates(duplicates: list[list[str]]) -> OptionError:
    named = [f"  {cut_list(keys, _SHARDS_NAMED)}" for keys in duplicates[:_SHARDS_NAMED]]
    if len(duplicates) > len(named):
        named.append(f"  and {len(duplicates) - len(named):,} more groups")
    return OptionError(
        f"{sum(map(len, duplicates)):,} shards have the same documents as another shard. Remove the copies below the "
        "raw root and forget them with interleaved forget, or release them all with --allow-duplicates:\n"
        + "\n".join(named)
    )


def _manifest(
    name: str,
    shards: Sequence[ShardState],
    hashes: Iterable[str],
    left_out: dict[str, str],
    duplicates: list[list[str]],
    values: list[Counted],
    present: CurrentStages,
    settings: Settings,
    above: str,
) -> Manifest:
    dropped = Counter[str]()
    for shard in shards:
        for stage in LEDGER_STAGES:
            dropped.update(shard.records[stage].dropped if stage in shard.records else {})
    # a filter with a bound is not applied where nothing measured its score, as CLIP's by default
    noted = {str(shard.records[FILTERED].notes.get("filters", "")) for shard in shards}
    applied = {name for names in noted for name in names.split(", ")}
    bounds = {name: settings.selection.bounds(name) for name in settings.selection.active_filters() if name in applied}
    licences, sources = licences_and_sources(values)
    tars = [(shard, role, tar) for shard in shards for role, tar in _tars_of(shard).items()]
    return Manifest(
        name=name,
        counts=sum((shard.records[FINAL_TARS].counts_out for shard in shards), Counts()),
        counts_in=sum((shard.records[NORMALIZED].counts_in for shard in shards), Counts()),
        dropped=dict(sorted(dropped.items(), key=lambda item: (-item[1], item[0]))),
        filters={name: (found.minimum, found.maximum) for name, found in bounds.items()},
        settings={stage: dict(found) for stage, found in present.settings.items()},
        code_versions=dict(present.versions),
        packages={package: metadata.version(package) for package in _PACKAGES},
        licences=licences,
        sources=sources,
        left_out=left_out,
        duplicates=duplicates,
        tars=[
            _released(shard, role, tar, sha256, settings.storage, above)
            for (shard, role, tar), sha256 in zip(tars, hashes, strict=True)
        ],
        files={},
    )


def _sha256(shard: ShardState, tar: OutputFile, storage: StorageSettings) -> str:
    """Return the SHA-256 of a tar, which records lack, once its content is known to be the recorded one."""
    xxh3, sha256 = file_hashes(tar.uri, storage.options)
    if tar.content not in (f"xxh3:{xxh3}", f"sha256:{sha256}"):
        raise _changed(shard.key, tar.uri)
    return sha256


def _changed(key: str, uri: str, folder: str = "") -> ShardError:
    delete = f"delete {folder} and " if folder else ""
    return ShardError(
        f"shard {key}: {uri} is not what its record says. Materialize final_tars again if it was changed by hand. If a "
        f"run has just replaced it, {delete}make the release again."
    )


def _released(
    shard: ShardState, role: str, tar: OutputFile, sha256: str, storage: StorageSettings, above: str
) -> ReleasedTar:
    record = shard.records[FINAL_TARS]
    return ReleasedTar(
        shard=shard.key,
        path=f"{above}{tar.uri.removeprefix(join(storage.output_root, ''))}",
        size=tar.size,
        sha256=sha256,
        counts=_counts_of(shard, role),
        source=record.source,
        versions={stage: found.data_version for stage, found in shard.records.items()},
    )


def _tars_of(shard: ShardState) -> dict[str, OutputFile]:
    """Return the final tars by role: one, or the parts."""
    return shard.records[FINAL_TARS].rows_files


def _counts_of(shard: ShardState, role: str) -> Counts:
    """Return the counts of one of the final tars."""
    record = shard.records[FINAL_TARS]
    return record.parts.get(role, record.counts_out)


def _index(manifest: Manifest) -> str:
    """Return the index of ``wids``. Tars without samples are left out, since no number of a sample leads to them."""
    shards = [
        {"url": tar.path, "nsamples": tar.counts.samples, "filesize": tar.size}
        for tar in manifest.tars
        if tar.counts.samples
    ]
    return json.dumps({"wids_version": 1, "name": manifest.name, "shardlist": shards}, indent=1) + "\n"


def _checked_folder(to: str, storage: StorageSettings) -> str:
    folder = (str(local_path(to)) if is_local(to) else to).rstrip("/")
    if not folder or folder.endswith(":"):
        raise OptionError(f"a release cannot be copied to {to}: choose an empty folder below it")
    check_output(join(folder, MANIFEST_FILE))
    for root in (storage.raw_root, storage.output_root):
        if f"{folder}/".startswith(f"{root.rstrip('/')}/"):
            raise OptionError(f"a release cannot be copied to {folder}: choose a folder outside {root}")
    return folder


def _copy_tars(
    shards: Iterable[ShardState],
    manifest: Manifest,
    storage: StorageSettings,
    folder: str,
    options: StorageOptions,
    watch: Watch | None,
) -> None:
    def copy(pair: tuple[OutputFile, ReleasedTar]) -> None:
        recorded, tar = pair
        source, target = recorded.uri, join(folder, tar.path)
        if compare_file(target, tar.size, tar.sha256, options) is None:
            return  # a killed call, or one at the same time, has copied it
        if is_local(source) and is_local(target) and _link(source, target):
            if recorded.stamp is not None and read_stamp(target) == recorded.stamp:
                return
        else:
            with open_input(source, storage.options) as file, atomic_output(target, options) as out:
                shutil.copyfileobj(file, out, _BLOCK)
            if recorded.content == f"xxh3:{out.checksum}":
                return
        if file_sha256(target, options) != tar.sha256:
            remove_file(target, options)
            raise _changed(tar.shard, source, folder)

    recorded_tars = [tar for shard in shards for tar in _tars_of(shard).values()]
    _watched(watch, "copying tars", copy, list(zip(recorded_tars, manifest.tars, strict=True)), _COPIERS)


def _write_documents(manifest: Manifest, folder: str, options: StorageOptions, watch: Watch | None) -> None:
    def write(pair: tuple[ReleasedTar, str]) -> None:
        tar, path = pair
        write_documents(tar, folder, path, options)

    pairs = list(zip(manifest.tars, documents_files(manifest), strict=True))
    _watched(watch, "writing documents", write, pairs, _WRITERS)


def _link(source: str, target: str) -> bool:
    """Link ``target`` to the local file ``source``; return False if the file system cannot.

    Runs replace a tar by another file and never write into it, so the link keeps the content.
    """
    path, origin = local_path(target), local_path(source)
    with storage_errors(target, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                path.hardlink_to(origin)
            except FileExistsError:  # a call at the same time made it, or it is damaged
                if path.samefile(origin):
                    return True
                check_output(target)
                path.unlink(missing_ok=True)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                path.unlink(missing_ok=True)
                return False
            else:
                return True


def _json(manifest: Manifest) -> bytes:
    return (json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n").encode()
