"""The status of a shard, from its records and the present stages, settings and raw shard: complete, or why not."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource
from interleaved_assets.pipeline.record import RAW_SHARDS, Record
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.stages.dag import StageDag, stage_dag
from interleaved_assets.pipeline.stored_records import listed_stamps, read_valid_records
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)

CURRENT: Final = "complete"
_CHANGES_NAMED: Final = 3
_VALUE_LENGTH: Final = 40


class State(StrEnum):
    """The state of a shard, in one word."""

    COMPLETE = CURRENT
    STALE = "stale"
    MISSING = "missing"
    FAILED = "failed"
    VANISHED = "vanished"
    UNREADABLE = "unreadable"


class Status(NamedTuple):
    """The state of a shard and its reason, in words that are the same for all shards with the same reason."""

    state: State
    text: str
    stage: str | None = None
    """The first stage that is not current."""


COMPLETE: Final = Status(State.COMPLETE, CURRENT)


@dataclass(frozen=True)
class CurrentStages:
    """The stages in force, with which records are compared. Made once for any number of shards."""

    stages: StageDag
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, object]]
    files: Mapping[str, Mapping[str, str]]
    """By stage, the version of each file that the settings name; none where the storage did not give them."""

    @classmethod
    def of(cls, settings: Settings) -> "CurrentStages":
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
            version: of the content of ``raw``, where it was read. Without it, a new stamp counts as a change, also
                where the content is the same, which only reading it would show.
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
        """The settings that have changed; where none has, the code."""
        before, now = dict(_leaves(record.settings)), dict(_leaves(self.settings[record.stage]))
        changes = [
            f"{name} {_short(before.get(name))} → {_short(now.get(name))}"
            for name in dict.fromkeys((*now, *before))
            if before.get(name) != now.get(name)
        ]
        if not changes:
            return f"code changed, version {record.code_version} → {self.versions[record.stage]}"
        more = f" and {len(changes) - _CHANGES_NAMED} more" if len(changes) > _CHANGES_NAMED else ""
        return f"settings changed: {', '.join(changes[:_CHANGES_NAMED])}{more}"


def _files(stage: Stage, settings: Settings) -> Mapping[str, str]:
    try:
        return stage.files(settings)
    except InterleavedError as error:
        logger.warning("whether %s is stale by its files is not known: %s", stage.name, error)
        return {}


def shard_statuses(
    raws: Iterable[RawShard], settings: Settings, versions: Mapping[str, str]
) -> Iterator[tuple[str, Status | None]]:
    """Key and status of each raw shard, in their order; None where the storage refuses its records.

    A shard with a damaged record is not current.

    Args:
        raws: the shards, as they are now.
        settings: in force.
        versions: content versions of those raw shards that were read, by key.
    """
    present = CurrentStages.of(settings)
    stamp_at = listed_stamps(settings.storage, present.stages)

    def status_of(raw: RawShard) -> tuple[str, Status | None]:
        try:
            records = read_valid_records(settings.storage.shard(raw.key), present.stages, stamp_at)
        except ShardError as error:
            return raw.key, Status(State.UNREADABLE, f"{State.UNREADABLE}: {error}")
        except StorageError as error:
            logger.warning("shard %s is left out: %s", raw.key, error)
            return raw.key, None
        return raw.key, present.status(records, raw, versions.get(raw.key))

    yield from parallel_map(status_of, raws, threads=READERS)


def _is_source(source: RawSource | None, raw: RawShard, version: str | None) -> bool:
    return source is not None and (source.stamp == raw.stamp or source.version == version)


def _leaves(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings within settings as single ones, ``own.width.min``."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            # selection and scoring keep theirs under this name, which means nothing to a reader
            yield from _leaves(value, "" if f"{prefix}{name}" == "settings" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: object) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"
