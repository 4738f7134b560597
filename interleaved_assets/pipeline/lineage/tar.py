"""Where a final tar comes from: its raw shard, and what each stage did on the way."""

from typing import Final, NamedTuple

from interleaved_assets.io.storage import file_sha256, is_local, join, local_path, options_of
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard
from interleaved_assets.pipeline.record import OutputFile, Record, ShardPaths, read_record
from interleaved_assets.pipeline.stages import final_tars
from interleaved_assets.pipeline.status import Present, recorded_stages, stage_records
from interleaved_assets.settings import Settings

_FOLDER: Final = "tars"


class TarTrace(NamedTuple):
    """A final tar and its records."""

    uri: str
    key: str
    sha256: str
    """Of the bytes as they are now."""
    recorded: OutputFile
    """As the tar was written."""
    source: RawSource | None
    """The raw shard as it was when it was read; None in records of before it was noted."""
    records: dict[str, Record]
    """Of the shard's stages, in the order of the chain, as they are now."""
    remade: list[str]
    """Stages that were made again since: their records are not of what went into this tar."""
    status: str
    """How the shard stands."""

    @property
    def as_recorded(self) -> bool:
        """Whether the bytes are those that were written."""
        return self.sha256 == self.recorded.sha256


def trace_tar(uri: str, settings: Settings) -> TarTrace:
    """From a final tar back to the raw shard, the settings and the code it came from.

    A tar below the output root is known by its place, a copy of one anywhere else by its content: then the record of
    every final tar is read.

    Raises:
        StorageError: the tar cannot be read.
        ShardError: no record speaks of it.
    """
    if is_local(uri):
        uri = str(local_path(uri))
    try:
        sha256 = file_sha256(uri, options_of(uri, settings.storage.options_by_scheme()))
    except ValueError as error:  # s3fs, of a bucket without a name in it
        raise StorageError(f"cannot read {uri}: {error}. Name a tar.") from error
    key = _key_by_place(uri, settings) or _key_by_content(sha256, settings)
    records = {} if key is None else stage_records(key, settings)
    if key is None or final_tars.NAME not in records:
        raise ShardError(
            f"{uri} (sha256 {sha256}): no record speaks of it. It was not written here, or its shard is being made "
            "again, or was since."
        )
    last = records[final_tars.NAME]
    return TarTrace(
        uri, key, sha256, last.outputs["rows"], last.source, records, _remade(records), _status(key, records, settings)
    )


def _key_by_place(uri: str, settings: Settings) -> str | None:
    folder = join(settings.storage.output_root, _FOLDER) + "/"
    return uri[len(folder) :].removesuffix(".tar") if uri.startswith(folder) and uri.endswith(".tar") else None


def _key_by_content(sha256: str, settings: Settings) -> str | None:
    root, options = settings.storage.output_root, settings.storage.options

    def record_of(key: str) -> Record | None:
        return read_record(ShardPaths(output_root=root, key=key).record(final_tars.NAME), options)

    keys = sorted(key for key, stages in recorded_stages(settings).items() if final_tars.NAME in stages)
    for key, record in zip(keys, parallel_map(record_of, keys, threads=READERS), strict=True):
        if record is not None and record.outputs["rows"].sha256 == sha256:
            return key
    return None


def _remade(records: dict[str, Record]) -> list[str]:
    """Stages whose version now is not the one that went into the tar."""
    remade: set[str] = set()
    for name in reversed(records):
        if name not in remade:  # what went into one of another version says nothing about this tar
            inputs = records[name].inputs.items()
            remade |= {key for key, version in inputs if key in records and records[key].data_version != version}
    return [name for name in records if name in remade]


def _status(key: str, records: dict[str, Record], settings: Settings) -> str:
    try:
        raw = find_raw_shard(key, settings.storage)
    except StorageError as error:
        return str(error)
    return Present.of(settings).status(records, raw).text
