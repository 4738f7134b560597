"""The records in the storage: those of one shard, those of many that were listed, and which shards have one."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from interleaved_assets.io.storage import (
    files_below,
    find_stamps,
    is_local,
    join,
    list_stamps,
    read_small,
    read_stamp,
)
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.record import (
    Record,
    content_stamp,
    has_its_outputs,
    parse_record,
    read_record,
    recent_content,
)
from interleaved_assets.pipeline.record_index import RecordIndex
from interleaved_assets.settings import StorageSettings
from interleaved_assets.shard_paths import ShardPaths

INDEX_FOLDER: Final = "state/records"
"""Below the output root: of each stage, the index of its records in a bucket."""
_FEWEST_LISTED: Final = 4
"""Shards from which on one listing of each folder takes fewer requests than one for each of their files."""


def read_records(paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
    """The records of one shard by stage, in the order of ``stages``; stages without a record are left out.

    Whether the outputs are still those that the records name is not checked.
    """
    found = {name: read_record(paths.record(name), paths.options) for name in stages}
    return {name: record for name, record in found.items() if record is not None}


def read_valid_records(paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
    """The valid records of one shard by stage, in the order of ``stages``.

    A stage is left out if it has no record, or if its outputs are not those that its record names: they were deleted or
    replaced, or a run is writing them or was killed while it wrote them.
    """
    return NOT_LISTED.read_valid(paths, stages)


def recorded_stages(storage: StorageSettings, stages: Iterable[str]) -> dict[str, list[str]]:
    """By shard, those of ``stages`` that have a record: one listing per stage, no record is read."""
    found: dict[str, list[str]] = {}
    for name in stages:
        for key in recorded_keys(storage, name):
            found.setdefault(key, []).append(name)
    return found


def recorded_keys(storage: StorageSettings, stage: str, below: str = "") -> list[str]:
    """Keys of the shards that have a record of ``stage``: one listing.

    Args:
        below: part of the keys before a slash; other keys are left out, and not listed.
    """
    root = join(storage.output_root, f"records/{stage}")
    folder = join(root, below) if below else root
    files = files_below(folder, storage.options)
    names = [name.removesuffix(".json") for name in files if name.endswith(".json")]
    return [f"{below}/{name}" if below else name for name in names]


class ListedRecords:
    """Records of shards whose records and outputs were listed: what did not change since is not asked for one by one.

    A listing in S3 takes one request for up to 1,000 files, in place of one for each. Where it has another stamp than
    expected, or none, the storage is asked what the file is now; for :data:`NOT_LISTED`, of every file. Made by
    :func:`list_records`.
    """

    def __init__(self, stamps: Mapping[str, str], folders: Mapping[str, str]) -> None:
        self._stamps = stamps
        self._folders = folders
        self._indexes: dict[str, RecordIndex] = {}

    @property
    def has_all(self) -> bool:
        """Whether the records of all shards were listed, and so show which there are."""
        return bool(self._indexes)

    def stamp_at(self, uri: str) -> str | None:
        """The stamp that the file at ``uri`` had when files were listed; None if it was missing, or not listed."""
        return self._stamps.get(uri)

    def read(self, paths: ShardPaths, stage: str) -> Record | None:
        """The shard's record, as of the listing where that has it; None if there is none."""
        uri = paths.record(stage)
        stamp = self._stamps.get(uri)
        if stamp is None:
            # a listing of all records shows that there is none, one of some shards does not
            return None if self.has_all else read_record(uri, paths.options)
        content = self._known_content(paths, stage, stamp)
        if content is not None:
            return parse_record(content, uri)
        index = self._indexes.get(stage)
        if index is None:
            return read_record(uri, paths.options)
        content = read_small(uri, paths.options)
        if content is None:
            return None
        if content_stamp(content) == stamp:
            index.add(paths.key, stamp, content, by_stamp=False)
        elif stamp.startswith("etag:") and read_stamp(uri, paths.options) == stamp:
            # the ETag is no MD5, and it was the same before and after the record was read
            index.add(paths.key, stamp, content, by_stamp=True)
        return parse_record(content, uri)

    def read_valid(self, paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
        """The valid records of one shard by stage, as :func:`read_valid_records` returns them."""
        found = {name: self.read(paths, name) for name in stages}
        present = partial(read_stamp, storage_options=paths.options)
        return {
            name: record
            for name, record in found.items()
            if record is not None and has_its_outputs(record, self.stamp_at, present)
        }

    def known_valid(self, paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record] | None:
        """What :meth:`read_valid` returns, without a request; None if the storage has to be asked."""
        found = {}
        for stage in stages:
            uri = paths.record(stage)
            stamp = self._stamps.get(uri)
            content = None if stamp is None else self._known_content(paths, stage, stamp)
            if content is not None:
                record = parse_record(content, uri)
                if record is not None and not has_its_outputs(record, self.stamp_at):
                    return None
                if record is not None:
                    found[stage] = record
            elif stamp is not None or not self.has_all:
                return None
        return found

    def _known_content(self, paths: ShardPaths, stage: str, stamp: str) -> bytes | None:
        """The content of the shard's record with this stamp, if it need not be read."""
        index = self._indexes.get(stage)
        return index.find(paths.key, stamp) if index else recent_content(stamp)

    def recorded_stages(self) -> dict[str, list[str]]:
        """By shard, the stages that have a record, as :func:`recorded_stages` returns them."""
        found: dict[str, list[str]] = {}
        for stage in self._folders:
            for key in self._stamps_of_records(stage):
                found.setdefault(key, []).append(stage)
        return found

    def open_indexes(self, storage: StorageSettings) -> None:
        """Read the index of each stage; for listings of all shards."""
        uris = [join(storage.output_root, f"{INDEX_FOLDER}/{stage}.parquet") for stage in self._folders]
        found = parallel_map(lambda uri: RecordIndex(uri, storage.options), uris, threads=READERS)
        self._indexes = dict(zip(self._folders, found, strict=True))

    def save_indexes(self) -> None:
        """Write the indexes that lacked too many of the records that were read; called after a look at all shards."""
        for stage, index in self._indexes.items():
            index.save(self._stamps_of_records(stage))

    def _stamps_of_records(self, stage: str) -> dict[str, str]:
        folder = join(self._folders[stage], "")
        return {
            uri[len(folder) :].removesuffix(".json"): stamp
            for uri, stamp in self._stamps.items()
            if uri.startswith(folder) and uri.endswith(".json")
        }


NOT_LISTED: Final = ListedRecords({}, {})
"""Of every file the storage is asked what it is now."""


def list_records(
    storage: StorageSettings, stages: Iterable[str], keys: Collection[str] | None = None, inputs: Iterable[str] = ()
) -> ListedRecords:
    """List the records and outputs of ``stages``, and the records of ``inputs``: of the shards ``keys``, or of all.

    Nothing is listed if the outputs are local files, for which no request is needed, or if there are too few ``keys``.
    """
    if is_local(storage.output_root) or (keys is not None and len(keys) < _FEWEST_LISTED):
        return NOT_LISTED
    names = list(stages)
    wanted: dict[str, set[str]] = {}
    inputs = list(inputs)
    for key in ["any"] if keys is None else keys:
        paths = storage.shard(key)
        outputs = (uri for name in names for uri in paths.outputs(name).values())
        for uri in (*map(paths.record, (*names, *inputs)), *outputs):
            folder, file = _folder_of(uri, key)
            wanted.setdefault(folder, set()).add(file)
    if keys is None:
        for folder in set[str]().union(*(storage.shard("any").folders(name) for name in names)):
            wanted.setdefault(folder, set())  # of exported images, whose names are not known

    def listed(folder: str) -> Mapping[str, str]:
        if keys is None:
            return list_stamps(folder, storage.options)
        return find_stamps(folder, wanted[folder], storage.options)

    stamps: dict[str, str] = {}
    for folder, found in zip(wanted, parallel_map(listed, wanted, threads=READERS), strict=True):
        stamps |= {f"{folder}/{file}": stamp for file, stamp in found.items()}
    records = ListedRecords(stamps, {name: _folder_of(storage.shard("any").record(name), "any")[0] for name in names})
    if keys is None:
        records.open_indexes(storage)
    return records


def _folder_of(uri: str, key: str) -> tuple[str, str]:
    """The folder of a stage's files that the shard's file at ``uri`` lies in, and the name of the file below it."""
    folder, _, ending = uri.rpartition(f"/{key}.")
    return folder, f"{key}.{ending}"
