"""Trace a final tar, or a tar of exported images, to its raw shard and to the records of all stages."""

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from interleaved_assets.export.names import is_image_file
from interleaved_assets.io.storage import content_version, is_local, join, local_path
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard
from interleaved_assets.pipeline.run.record import OutputFile, Record, record_of
from interleaved_assets.pipeline.run.stored_records import read_records, recorded_keys
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.names import FINAL_TARS, IMAGE_EXPORT
from interleaved_assets.pipeline.status.status import COMPLETE, CurrentStages
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets.settings.shard_paths import IMAGES_FOLDER, shard_of_tar

_STAGES: Final = (FINAL_TARS, IMAGE_EXPORT)
"""The stages that write tars."""
_XXH3: Final = "xxh3"
_Content = Callable[[str], str]
"""Returns the hash of the tar, of this kind. SHA-256 is that of records of older versions."""


class TarPlace(NamedTuple):
    """The shard and the stage that a tar is an output of."""

    key: str
    stage: str


class TarTrace(NamedTuple):
    """A tar and the records of its shard."""

    uri: str
    key: str
    stage: str
    """The stage that wrote the tar."""
    content: str
    """Hash of the present content of the tar, as :attr:`.OutputFile.content` has it."""
    recorded: OutputFile
    """The tar as its record describes it: the final tar of the shard, or one of its parts."""
    source: RawSource | None
    """The raw shard as it was when it was read; None for records of older versions, which do not name it."""
    records: dict[str, Record]
    """The present records of the shard by stage, in the order of the DAG."""
    remade: list[str]
    """Stages that have run again since: their present records do not describe the inputs of this tar."""
    status: str
    """Status of the shard."""

    @property
    def as_recorded(self) -> bool:
        return self.content == self.recorded.content


def trace_tar(uri: str, settings: Settings) -> TarTrace:
    """Return the raw shard, settings and code versions that a final tar, or a tar of exported images, was made from.

    A tar below the output root is found by its path. A copy elsewhere is found by its content in the records of all
    tars. Raises ShardError if no record names it.
    """
    if is_local(uri):
        uri = str(local_path(uri))
    options = settings.storage.options_for(uri)

    @cache
    def content(kind: str) -> str:
        return content_version(uri, "", options, like=f"{kind}:")

    present = content(_XXH3)
    place = tar_at(uri, settings.storage) or _tar_with(content, settings.storage)
    records = {} if place is None else read_records(settings.storage.shard(place.key), _stages_up_to(place, settings))
    if place is None or place.stage not in records:
        raise ShardError(
            f"{uri} ({present}): no record describes it. Either it was not written below this output root, or "
            "its shard is being made again or was made again since."
        )
    key, stage = place
    last = records[stage]
    recorded = _recorded(uri, content, last)
    if recorded is None:
        raise ShardError(
            f"{uri} ({present}) is no tar of {stage} of shard {key}, which are {_named(last)}: it was written "
            "under other settings. Delete this one if it lies among them."
        )
    status = _status(key, settings)
    return TarTrace(uri, key, stage, content(_kind(recorded)), recorded, last.source, records, _remade(records), status)


def _has(content: _Content, file: OutputFile) -> bool:
    """Return whether the tar has the content of ``file``."""
    return content(_kind(file)) == file.content


def _kind(file: OutputFile) -> str:
    return file.content.partition(":")[0]


def _tars(record: Record) -> list[OutputFile]:
    return [file for file in record.outputs.values() if file.uri.endswith(".tar")]


def _named(record: Record) -> str:
    if record.stage == FINAL_TARS:
        return record.rows_uri
    return ", ".join(file.uri for file in _tars(record))


def _recorded(uri: str, content: _Content, record: Record) -> OutputFile | None:
    """Return the tar that ``record`` names at ``uri``, or else the one with this content; None if there is none."""
    at_place = (file for file in _tars(record) if file.uri == uri)
    return next(at_place, None) or next((file for file in _tars(record) if _has(content, file)), None)


def _stages_up_to(place: TarPlace, settings: Settings) -> list[str]:
    """Return the stages that the tar is made from, and its own stage, which present settings may not have."""
    before = [name for name in stage_dag(settings) if name not in _STAGES]
    return [*before, *_STAGES[: _STAGES.index(place.stage) + 1]]


def tar_at(uri: str, storage: StorageSettings) -> TarPlace | None:
    """Return the shard and stage of the tar that a path or URL below the output root names; None for others."""
    if (key := shard_of_tar(uri, storage.output_root)) is not None:
        return TarPlace(key, FINAL_TARS)
    images = join(storage.output_root, f"{IMAGES_FOLDER}/")
    key, _, name = uri.removeprefix(images).rpartition("/")
    if uri.startswith(images) and key and name.endswith(".tar") and is_image_file(name):
        return TarPlace(key, IMAGE_EXPORT)
    return None


def _tar_with(content: _Content, storage: StorageSettings) -> TarPlace | None:
    """Return the tar that has this content, by the records of all shards; None if there is none."""

    def tar_of(recorded: tuple[str, str]) -> TarPlace | None:
        key, stage = recorded
        record = record_of(storage.shard(key), stage)
        return TarPlace(key, stage) if record and any(_has(content, file) for file in _tars(record)) else None

    recorded = [(key, stage) for stage in _STAGES for key in sorted(recorded_keys(storage, stage))]
    return next((place for place in parallel_map(tar_of, recorded, threads=READERS) if place), None)


def _remade(records: dict[str, Record]) -> list[str]:
    """Return the stages whose present data version is not the one that went into the tar."""
    remade: set[str] = set()
    for name in reversed(records):
        if name not in remade:  # the inputs of a stage that ran again are not those of this tar
            inputs = records[name].inputs.items()
            remade |= {key for key, version in inputs if key in records and records[key].data_version != version}
    return [name for name in records if name in remade]


def _status(key: str, settings: Settings) -> str:
    try:
        raw = find_raw_shard(key, settings.storage)
    except StorageError as error:
        return str(error)
    records = read_records(settings.storage.shard(key), stage_dag(settings))
    return next(iter(CurrentStages.of(settings).not_current(records, raw).values()), COMPLETE).text
