"""The records that are in the storage: those of one shard, and which shards have one."""

from collections.abc import Callable, Iterable

from interleaved_assets.io.storage import filesystem, is_local, join, list_stamps, storage_errors
from interleaved_assets.pipeline.record import Record, read_record, read_valid_record
from interleaved_assets.settings import StorageSettings
from interleaved_assets.shard_paths import ShardPaths


def read_records(paths: ShardPaths, stages: Iterable[str]) -> dict[str, Record]:
    """The records of one shard by stage, in the order of ``stages``; stages without a record are left out.

    Whether the outputs are still those that the records name is not checked.

    Raises:
        ShardError: a file is not a record.
    """
    found = {name: read_record(paths.record(name), paths.options) for name in stages}
    return {name: record for name, record in found.items() if record is not None}


def read_valid_records(
    paths: ShardPaths, stages: Iterable[str], stamp_at: Callable[[str], str | None] | None = None
) -> dict[str, Record]:
    """The valid records of one shard by stage, in the order of ``stages``.

    A stage is left out if it has no record, or if its outputs are not those that its record names: they were deleted or
    replaced, or a run is writing them or was killed while it wrote them.

    Args:
        paths: of the shard.
        stages: names of stages.
        stamp_at: returns the stamp that the output at a URI had when outputs were listed; without it the storage is
            asked for the stamp of each output.

    Raises:
        ShardError: a file is not a record.
    """
    found = {name: read_valid_record(paths.record(name), paths.options, stamp_at) for name in stages}
    return {name: record for name, record in found.items() if record is not None}


def recorded_stages(storage: StorageSettings, stages: Iterable[str]) -> dict[str, list[str]]:
    """By shard, those of ``stages`` that have a record: one listing per stage, no record is read.

    Raises:
        StorageError: the records cannot be listed.
    """
    found: dict[str, list[str]] = {}
    for name in stages:
        folder = join(storage.output_root, f"records/{name}")
        with storage_errors(folder, "list"):
            fs, path = filesystem(folder, storage.options)
            fs.invalidate_cache(path)
            start = len(path.rstrip("/")) + 1
            for file in fs.find(path):
                if file.endswith(".json"):
                    found.setdefault(file[start:].removesuffix(".json"), []).append(name)
    return found


def listed_stamps(storage: StorageSettings, stages: Iterable[str]) -> Callable[[str], str | None] | None:
    """A function from the URI of an output of ``stages`` to its stamp, taken from a listing of all outputs.

    A listing needs one request per 1,000 outputs instead of one per output. None if the outputs are local files, for
    which no request is needed.

    Raises:
        StorageError: the outputs cannot be listed.
    """
    if is_local(storage.output_root):
        return None
    folders = {uri.rpartition("/")[0] for name in stages for uri in storage.shard("any").outputs(name).values()}
    stamps: dict[str, str] = {}
    for folder in folders:
        stamps |= {join(folder, name): stamp for name, stamp in list_stamps(folder, storage.options).items()}
    return stamps.get
