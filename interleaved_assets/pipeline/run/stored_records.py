"""The records in the storage: those of one shard, and the keys of shards that have one."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from interleaved_assets.io.storage import files_below, is_local, join, list_stamps, read_stamp
from interleaved_assets.pipeline.raw.keys import is_key
from interleaved_assets.pipeline.run.record import Record, has_its_outputs, record_of, with_present_stamps
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.settings import StorageSettings
from interleaved_assets.settings.shard_paths import ShardPaths

Stamps: TypeAlias = Mapping[str, str]
"""Stamp of each file at the time of a listing, by URI."""
NOT_LISTED: Final[Stamps] = {}
"""No stamps: the storage is asked for the stamp of each file."""


def read_records(paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
    """Return the records of one shard by stage, in the order of ``stages``; stages without a record are left out.

    It is not checked whether the outputs are still those that the records name.
    """
    found = {name: record_of(paths, name) for name in stages}
    return {name: record for name, record in found.items() if record is not None}


def read_valid_records(paths: ShardPaths, stages: Iterable[str], listed: Stamps = NOT_LISTED) -> dict[str, Record]:
    """Return the valid records of one shard by stage, in the order of ``stages``.

    A stage is left out if it has no record, or if its outputs are not those that its record names: they were deleted or
    replaced, or a run is writing them or was killed while it wrote them. If the stamp of an output in ``listed``
    differs from the record, or is missing, the storage is asked for it.
    """
    found = read_records(paths, stages)
    present = partial(read_stamp, storage_options=paths.options)
    return {name: record for name, record in found.items() if has_its_outputs(record, listed.get, present)}


def read_present_records(paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
    """Return the records whose outputs exist with their contents, also where the outputs were only copied.

    Outputs with another stamp than the recorded one are hashed. A run would do that and renew the records, but no run
    takes a shard whose raw shard is gone.
    """
    found = {name: with_present_stamps(record, paths.options) for name, record in read_records(paths, stages).items()}
    return {name: record for name, record in found.items() if record is not None}


def recorded_stages(storage: StorageSettings, stages: Iterable[str]) -> dict[str, list[str]]:
    """Return, by shard, those of ``stages`` that have a record: one listing per stage, no record is read."""
    found: dict[str, list[str]] = {}
    for name in stages:
        for key in recorded_keys(storage, name):
            found.setdefault(key, []).append(name)
    return found


def recorded_keys(storage: StorageSettings, stage: str, below: str = "") -> list[str]:
    """Return the keys of the shards that have a record of ``stage``: one listing.

    A file whose name is no key, such as a copy by hand or the ``._a.json`` of macOS, is of no shard.

    Args:
        below: part of the keys before a slash; other keys are left out, and not listed.
    """
    root = join(storage.output_root, f"records/{stage}")
    folder = join(root, below) if below else root
    files = files_below(folder, storage.options)
    names = [name.removesuffix(".json") for name in files if name.endswith(".json")]
    return [key for name in names if is_key(key := f"{below}/{name}" if below else name)]


def list_outputs(storage: StorageSettings, stages: Iterable[Stage]) -> Stamps:
    """List the outputs of ``stages``, of all shards: in S3 one request for 1,000 of them.

    Nothing is listed if the outputs are local files, whose stamps take no request.
    """
    if is_local(storage.output_root):
        return NOT_LISTED
    paths = storage.shard("any")
    folders = sorted({folder for stage in stages for folder in paths.folders(stage.name, stage.output.others)})
    found = parallel_map(lambda folder: list_stamps(folder, storage.options), folders, threads=READERS)
    return {
        f"{folder}/{file}": stamp
        for folder, stamps in zip(folders, found, strict=True)
        for file, stamp in stamps.items()
    }
