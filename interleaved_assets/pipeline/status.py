"""Which shards are current and why the others are not: recorded versions against the present ones."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from interleaved_assets.io.storage import filesystem, is_local, join, list_stamps, storage_errors
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError
from interleaved_assets.pipeline.execute import Stage
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import versions_looked_at
from interleaved_assets.pipeline.record import RAW_SHARDS, Record, ShardPaths, read_record, read_valid_record
from interleaved_assets.pipeline.stages.dag import StageDag, stage_dag
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)

CURRENT: Final = "complete"
_CHANGES_TOLD: Final = 3
_VALUE_LENGTH: Final = 40


class State(StrEnum):
    """How a shard stands, in one word."""

    COMPLETE = CURRENT
    STALE = "stale"
    MISSING = "missing"
    FAILED = "failed"
    VANISHED = "vanished"
    UNREADABLE = "unreadable"


class Status(NamedTuple):
    """How a shard stands, and why, in words that are the same for all shards with the same reason."""

    state: State
    text: str
    stage: str | None = None
    """The first stage that is not current."""


COMPLETE: Final = Status(State.COMPLETE, CURRENT)


@dataclass(frozen=True)
class Present:
    """What records are compared with: the stages in force. Worked out once for any number of shards."""

    stages: StageDag
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, object]]
    files: Mapping[str, Mapping[str, str]]
    """By stage, the version of each file that the settings name; none where the storage did not give them."""

    @classmethod
    def of(cls, settings: Settings) -> "Present":
        """The stages under ``settings``.

        A file that the settings name, such as a checkpoint, and that cannot be read is logged and taken as unchanged:
        the stage that needs it will fail, and says so.
        """
        stages = stage_dag(settings)
        return cls(
            stages,
            {name: stage.code_version(settings) for name, stage in stages.items()},
            {name: json.loads(json.dumps(stage.settings(settings))) for name, stage in stages.items()},
            {name: _files(stage, settings) for name, stage in stages.items()},
        )

    def status(
        self,
        records: Mapping[str, Record],
        raw: RawShard | None = None,
        version: str | None = None,
    ) -> Status:
        """Complete, or what comes first of: a stage that is missing, or was made under other settings, by other code or
        from other inputs.

        Args:
            records: of the shard's stages.
            raw: the shard as it lies there now; without it, the raw shard is taken as unchanged.
            version: of the content of ``raw``, where somebody has looked at it. Without it, a new stamp counts as a
                change, whether or not the content is new: telling that would mean reading it.
        """
        for name, stage in self.stages.items():
            record = records.get(name)
            if record is None:
                return Status(State.MISSING, f"no {name}" if records else "never materialized", name)
            if record.code_version != self.versions[name]:
                return Status(State.STALE, f"{name} stale: {self._what_changed(record)}", name)
            if raw is not None and RAW_SHARDS in stage.inputs and not _is_source(record.source, raw, version):
                return Status(State.STALE, f"{name} stale: {RAW_SHARDS} changed", name)
            for upstream in stage.inputs:
                if upstream in records and record.inputs.get(upstream) != records[upstream].data_version:
                    return Status(State.STALE, f"{name} stale: {upstream} changed", name)
            for file, present in self.files[name].items():
                if record.inputs.get(file) != present:
                    return Status(State.STALE, f"{name} stale: the file of {file} changed", name)
        return COMPLETE

    def _what_changed(self, record: Record) -> str:
        """The settings that are not what they were; where none is, it was the code."""
        before, now = dict(_leaves(record.settings)), dict(_leaves(self.settings[record.stage]))
        changes = [
            f"{name} {_short(before.get(name))} → {_short(now.get(name))}"
            for name in dict.fromkeys((*now, *before))
            if before.get(name) != now.get(name)
        ]
        if not changes:
            return f"code changed, version {record.code_version} → {self.versions[record.stage]}"
        more = f" and {len(changes) - _CHANGES_TOLD} more" if len(changes) > _CHANGES_TOLD else ""
        return f"settings changed: {', '.join(changes[:_CHANGES_TOLD])}{more}"


def _files(stage: Stage, settings: Settings) -> Mapping[str, str]:
    try:
        return stage.files(settings)
    except InterleavedError as error:
        logger.warning("whether %s is stale by its files is not known: %s", stage.name, error)
        return {}


def read_stages(
    key: str, settings: Settings, stages: Iterable[str], stamp_at: Callable[[str], str | None] | None = None
) -> dict[str, Record]:
    """The valid records of one shard at the ``stages``, by stage, in their order.

    A stage is left out that has no record, or whose outputs are not those that its record names: they were deleted or
    replaced, or a run is writing them or was killed while it wrote them.

    Args:
        stamp_at: stamps of outputs by URI, where they have been listed; else each output is looked at.

    Raises:
        ShardError: a file is not a record.
    """
    paths = ShardPaths(output_root=settings.storage.output_root, key=key)
    found = {name: read_valid_record(paths.record(name), settings.storage.options, stamp_at) for name in stages}
    return {name: record for name, record in found.items() if record is not None}


def stage_records(key: str, settings: Settings) -> dict[str, Record]:
    """The records of one shard by stage, in the order of the chain; stages that have none are left out.

    Whether the outputs are still those that the records name is not looked at.
    """
    paths = ShardPaths(output_root=settings.storage.output_root, key=key)
    found = {name: read_record(paths.record(name), settings.storage.options) for name in stage_dag(settings)}
    return {name: record for name, record in found.items() if record is not None}


def shard_statuses(
    raws: Iterable[RawShard], settings: Settings, versions: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Key and status in words of each raw shard, in their order; None where the storage does not give its records.

    A shard with a damaged record is not current. ``versions`` has those of the raw shards that were looked at.
    """
    present = Present.of(settings)
    stamp_at = listed_stamps(settings)

    def status_of(raw: RawShard) -> tuple[str, str | None]:
        try:
            records = read_stages(raw.key, settings, present.stages, stamp_at)
        except ShardError as error:
            return raw.key, f"{State.UNREADABLE}: {error}"
        except StorageError as error:
            logger.warning("shard %s is left out: %s", raw.key, error)
            return raw.key, None
        return raw.key, present.status(records, raw, versions.get(raw.key)).text

    yield from parallel_map(status_of, raws, threads=READERS)


def _is_source(source: RawSource | None, raw: RawShard, version: str | None) -> bool:
    return source is not None and (source.stamp == raw.stamp or source.version == version)


def _leaves(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings within settings as single ones, ``own.width.min``."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            # selection and scoring keep theirs under this name, which tells a reader nothing
            yield from _leaves(value, "" if f"{prefix}{name}" == "settings" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: object) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"


VANISHED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, its outputs are left as they are")
VANISHED_UNUSED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, nothing was made of it")


@dataclass(frozen=True)
class Survey:
    """What a look at the storage found, and what it is held against.

    Attributes:
        settings: in force now.
        present: the stages in force.
        raws: the raw shards by key; None where the raw root could not be listed.
        recorded: for each shard with a record, the stages that have one.
        keys: of all shards, sorted.
        failed: for each stage, the shards whose last run failed, where somebody told.
        problem: why the raw root could not be listed.
        versions: of the raw shards that the sensor has looked at as they are now.
        stamp_at: stamp of the output at a URI, where outputs were listed.
    """

    settings: Settings
    present: Present
    raws: Mapping[str, RawShard] | None
    recorded: Mapping[str, list[str]]
    keys: list[str]
    failed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    problem: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    stamp_at: Callable[[str], str | None] | None = None

    def valid_records(self, key: str) -> dict[str, Record]:
        """The shard's valid records; those alone are read that the listing showed.

        Raises:
            ShardError: one of the files is not a record.
        """
        return read_stages(key, self.settings, self.recorded.get(key, ()), self.stamp_at)

    def status(self, key: str, records: Mapping[str, Record]) -> Status:
        """How the shard stands, given its valid records."""
        raw = None
        if self.raws is not None:
            raw = self.raws.get(key)
            if raw is None:
                return VANISHED if records else VANISHED_UNUSED
        status = self.present.status(records, raw, self.versions.get(key))
        if status.stage is not None and status.state is State.MISSING and key in self.failed.get(status.stage, ()):
            return Status(State.FAILED, f"{status.stage} failed: its error stands on the shard", status.stage)
        return status


def survey(
    settings: Settings,
    registered: Iterable[str] = (),
    failed: Mapping[str, AbstractSet[str]] | None = None,
) -> Survey:
    """Look at the raw root and at the records: one listing of the former, one per stage of the latter.

    Args:
        registered: keys that Dagster has, which may have neither.
        failed: for each stage, the shards whose last run failed.

    Raises:
        StorageError: the records cannot be listed.
    """
    raws: dict[str, RawShard] | None = None
    problem = ""
    try:
        raws = {raw.key: raw for raw in list_raw_shards(settings.storage)}
    except StorageError as error:
        problem = str(error)
    recorded = recorded_stages(settings)
    keys = sorted({*(raws or ()), *recorded, *registered})
    versions = versions_looked_at((raws or {}).values(), settings.storage)
    stamp_at = listed_stamps(settings)
    return Survey(settings, Present.of(settings), raws, recorded, keys, failed or {}, problem, versions, stamp_at)


def listed_stamps(settings: Settings) -> Callable[[str], str | None] | None:
    """Gives the stamp of the output at a URI, from a listing of all outputs: a request for 1,000 instead of one each.

    None where the outputs are local files, which take no request.

    Raises:
        StorageError: the outputs cannot be listed.
    """
    storage = settings.storage
    if is_local(storage.output_root):
        return None
    folders = {
        uri.rpartition("/")[0]
        for name in stage_dag(settings)
        for uri in ShardPaths(output_root=storage.output_root, key="any").outputs(name).values()
    }
    stamps: dict[str, str] = {}
    for folder in folders:
        stamps |= {join(folder, name): stamp for name, stamp in list_stamps(folder, storage.options).items()}
    return stamps.get


def recorded_stages(settings: Settings) -> dict[str, list[str]]:
    """Every shard that has a record, with the stages that have one: a listing per stage, nothing is read.

    Raises:
        StorageError: the records cannot be listed.
    """
    storage = settings.storage
    found: dict[str, list[str]] = {}
    for name in stage_dag(settings):
        folder = join(storage.output_root, f"records/{name}")
        with storage_errors(folder, "list"):
            fs, path = filesystem(folder, storage.options)
            fs.invalidate_cache(path)
            start = len(path.rstrip("/")) + 1
            for file in fs.find(path):
                if file.endswith(".json"):
                    found.setdefault(file[start:].removesuffix(".json"), []).append(name)
    return found
