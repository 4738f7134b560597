"""Which shards are current, and why the others are not: recorded versions against the present ones."""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.chain import Chain, chain
from interleaved_assets.pipeline.in_order import READERS, in_order
from interleaved_assets.pipeline.raw import RawShard, Source
from interleaved_assets.pipeline.record import RAW_SHARDS, Claim, Record, ShardPaths, read_state
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
    INTERRUPTED = "interrupted"
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

    stages: Chain
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, object]]

    @classmethod
    def of(cls, settings: Settings) -> "Present":
        """The stages under ``settings``.

        Raises:
            StorageError: a file that the settings name, such as a checkpoint, cannot be read.
        """
        stages = chain(settings)
        return cls(
            stages,
            {name: stage.code_version(settings) for name, stage in stages.items()},
            {name: json.loads(json.dumps(stage.settings(settings))) for name, stage in stages.items()},
        )

    def status(
        self,
        records: Mapping[str, Record],
        raw: RawShard | None = None,
        claims: Collection[str] = (),
        version: str | None = None,
    ) -> Status:
        """Complete, or what comes first of: a stage that is missing, or was made under other settings, by other code or
        from other inputs.

        Args:
            records: of the shard's stages.
            raw: the shard as it lies there now; without it, the raw shard is taken as unchanged.
            claims: stages where a run is at work on the shard, or was killed; nothing tells the two apart.
            version: of the content of ``raw``, where somebody has looked at it. Without it, a new stamp counts as a
                change, whether or not the content is new: telling that would mean reading it.
        """
        for name, stage in self.stages.items():
            record = records.get(name)
            if record is None and name in claims:
                return Status(State.INTERRUPTED, f"no {name}: a run on it was interrupted, or is under way", name)
            if record is None:
                return Status(State.MISSING, f"no {name}" if records else "never materialized", name)
            if record.code_version != self.versions[name]:
                return Status(State.STALE, f"{name} stale: {self._what_changed(record)}", name)
            if raw is not None and RAW_SHARDS in stage.inputs and not _is_source(record.source, raw, version):
                return Status(State.STALE, f"{name} stale: {RAW_SHARDS} changed", name)
            for upstream in stage.inputs:
                if upstream in records and record.inputs.get(upstream) != records[upstream].data_version:
                    return Status(State.STALE, f"{name} stale: {upstream} changed", name)
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


class Recorded(NamedTuple):
    """What stands in the place of the records of one shard, by stage, in the order of the chain."""

    records: dict[str, Record]
    claims: dict[str, Claim]


def read_stages(key: str, settings: Settings, stages: Iterable[str]) -> Recorded:
    """What the ``stages`` have recorded of one shard.

    Raises:
        ShardError: a file is no record of ours.
    """
    paths = ShardPaths(output_root=settings.storage.output_root, key=key)
    found = Recorded({}, {})
    for name in stages:
        state = read_state(paths.record(name), settings.storage.options)
        if isinstance(state, Record):
            found.records[name] = state
        elif state is not None:
            found.claims[name] = state
    return found


def stage_records(key: str, settings: Settings) -> dict[str, Record]:
    """The records of one shard by stage, in the order of the chain; stages that have none are left out."""
    return read_stages(key, settings, chain(settings)).records


def shard_statuses(
    raws: Iterable[RawShard], settings: Settings, versions: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Key and status in words of each raw shard, in their order; None where the storage does not give its records.

    A shard with a damaged record is not current. ``versions`` has those of the raw shards that were looked at.
    """
    present = Present.of(settings)

    def status_of(raw: RawShard) -> tuple[str, str | None]:
        try:
            records, claims = read_stages(raw.key, settings, present.stages)
        except ShardError as error:
            return raw.key, f"{State.UNREADABLE}: {error}"
        except StorageError as error:
            logger.warning("shard %s is left out: %s", raw.key, error)
            return raw.key, None
        return raw.key, present.status(records, raw, claims, versions.get(raw.key)).text

    yield from in_order(status_of, raws, threads=READERS)


def _is_source(source: Source | None, raw: RawShard, version: str | None) -> bool:
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
