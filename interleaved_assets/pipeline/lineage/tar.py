"""Trace a final tar to its raw shard and to the records of all stages."""

from typing import NamedTuple

from interleaved_assets.io.storage import file_sha256, is_local, local_path, options_of
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard
from interleaved_assets.pipeline.record import OutputFile, Record, read_record
from interleaved_assets.pipeline.stages import final_tars
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import CurrentStages
from interleaved_assets.pipeline.stored_records import read_records, recorded_stages
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets.shard_paths import shard_of_tar


class TarTrace(NamedTuple):
    """A final tar and its records."""

    uri: str
    key: str
    sha256: str
    """SHA-256 of the present content of the tar, as 64 hex digits."""
    recorded: OutputFile
    """The tar as its record describes it: the final tar of the shard, or the part of it that this is."""
    source: RawSource | None
    """The raw shard as it was when it was read; None in records of older versions, which do not have it."""
    records: dict[str, Record]
    """The present records of the shard by stage, in the order of the DAG."""
    remade: list[str]
    """Stages that have run again since: their present records do not describe the inputs of this tar."""
    status: str
    """Status of the shard."""

    @property
    def as_recorded(self) -> bool:
        """Whether the content is the one that was written."""
        return self.sha256 == self.recorded.sha256


def trace_tar(uri: str, settings: Settings) -> TarTrace:
    """The raw shard, settings and code versions that a final tar was made from.

    A tar below the output root is found by its path. A copy elsewhere is found by its content: the records of all final
    tars are read for it.

    Raises:
        StorageError: the tar cannot be read.
        ShardError: it has no record.
    """
    if is_local(uri):
        uri = str(local_path(uri))
    try:
        sha256 = file_sha256(uri, options_of(uri, settings.storage.options_by_scheme()))
    except ValueError as error:  # s3fs raises this for a bucket without an object name
        raise StorageError(f"cannot read {uri}: {error}. Name a tar.") from error
    key = shard_of_tar(uri, settings.storage.output_root) or _key_by_content(sha256, settings.storage)
    records = {} if key is None else read_records(settings.storage.shard(key), stage_dag(settings))
    if key is None or final_tars.NAME not in records:
        raise ShardError(
            f"{uri} (sha256 {sha256}): no record describes it. Either it was not written below this output root, or "
            "its shard is being made again or was made again since."
        )
    last = records[final_tars.NAME]
    recorded = _recorded(uri, sha256, last)
    if recorded is None:
        raise ShardError(
            f"{uri} (sha256 {sha256}) is no final tar of shard {key}, which are {last.rows_uri}: it was split in "
            "another way. Delete this one if it lies among them."
        )
    return TarTrace(uri, key, sha256, recorded, last.source, records, _remade(records), _status(key, records, settings))


def _recorded(uri: str, sha256: str, record: Record) -> OutputFile | None:
    """The final tar that is at ``uri`` according to ``record``, or else has this content."""
    files = record.rows_files.values()
    at_place = (file for file in files if file.uri == uri)
    return next(at_place, None) or next((file for file in files if file.sha256 == sha256), None)


def _key_by_content(sha256: str, storage: StorageSettings) -> str | None:
    def record_of(key: str) -> Record | None:
        return read_record(storage.shard(key).record(final_tars.NAME), storage.options)

    keys = sorted(recorded_stages(storage, [final_tars.NAME]))
    for key, record in zip(keys, parallel_map(record_of, keys, threads=READERS), strict=True):
        if record is not None and any(file.sha256 == sha256 for file in record.rows_files.values()):
            return key
    return None


def _remade(records: dict[str, Record]) -> list[str]:
    """Stages whose present data version is not the one that went into the tar."""
    remade: set[str] = set()
    for name in reversed(records):
        if name not in remade:  # the inputs of a stage that ran again are not those of this tar
            inputs = records[name].inputs.items()
            remade |= {key for key, version in inputs if key in records and records[key].data_version != version}
    return [name for name in records if name in remade]


def _status(key: str, records: dict[str, Record], settings: Settings) -> str:
    try:
        raw = find_raw_shard(key, settings.storage)
    except StorageError as error:
        return str(error)
    return CurrentStages.of(settings).status(records, raw).text
