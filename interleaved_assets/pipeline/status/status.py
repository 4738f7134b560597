"""The status of a shard, from its records and the present stages, settings and raw shard: complete, or why not."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, seems_same
from interleaved_assets.pipeline.run.attempt import changed_packages, installed_versions
from interleaved_assets.pipeline.run.record import RAW_SHARDS, Record
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages.dag import EVERY_STAGE, StageDag, stage_dag
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)

CURRENT: Final = "complete"
_CHANGES_NAMED: Final = 3
_REASONS_NAMED: Final = 3
_VALUE_LENGTH: Final = 40
_STAGES: Final = frozenset(EVERY_STAGE)


class State(StrEnum):
    COMPLETE = CURRENT
    STALE = "stale"
    MISSING = "missing"
    FAILED = "failed"
    VANISHED = "vanished"
    UNREADABLE = "unreadable"


class Status(NamedTuple):
    """The state of a shard and the reason, worded the same for all shards with the same reason."""

    state: State
    text: str
    stage: str | None = None
    """The first stage that is not current; None if all are current, or it is not known."""


COMPLETE: Final = Status(State.COMPLETE, CURRENT)
# failed shards come first, because a changed setting can make thousands stale
URGENT: Final = (
    State.FAILED,
    State.UNREADABLE,
    State.MISSING,
    State.STALE,
    State.VANISHED,
    State.COMPLETE,
)
"""The states in the order in which reports show them."""
EXAMPLES: Final = 3
"""Number of keys listed for each status."""


class StatusLine(NamedTuple):
    """Shards with the same status for the same reason."""

    status: Status
    keys: list[str]
    """Sorted keys of the shards."""
    problem: str = ""
    """The error of the first shard, if it has one of its own."""

    @property
    def shards(self) -> int:
        return len(self.keys)

    @property
    def examples(self) -> str:
        """The first keys, with their number and that of all keys: ``a, b, c (3 of 18)``."""
        cut = f" ({EXAMPLES} of {self.shards:,})" if self.shards > EXAMPLES else ""
        return f"{', '.join(self.keys[:EXAMPLES])}{cut}"

    @property
    def why(self) -> str:
        """The reason in words; for several shards with errors of their own, the first error as an example."""
        if not self.problem:
            return self.status.text
        return f"{self.status.text}{', for example' if self.shards > 1 else ''}: {self.problem}"


def status_lines(statuses: Mapping[str, Status], problems: Mapping[str, str] | None = None) -> list[StatusLine]:
    """Group shards by status: the most urgent state first, within a state the most frequent status first.

    ``problems`` has the error of each shard that has one of its own.
    """
    alike: dict[Status, list[str]] = {}
    for key in sorted(statuses):
        alike.setdefault(statuses[key], []).append(key)
    lines = [StatusLine(status, keys, (problems or {}).get(keys[0], "")) for status, keys in alike.items()]
    return sorted(lines, key=lambda line: (URGENT.index(line.status.state), -line.shards, line.status.text))


def in_short(lines: Sequence[StatusLine]) -> str:
    """Return the most urgent reasons with their numbers of shards, in one line."""
    named = [f"{line.shards:,} {line.status.text}" for line in lines[:_REASONS_NAMED]]
    return "; ".join(named) + (f"; and {len(lines) - _REASONS_NAMED} more reasons" if len(lines) > len(named) else "")


@dataclass(frozen=True)
class CurrentStages:
    """The stages under the present settings, with which the records of any number of shards are compared."""

    stages: StageDag
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, object]]
    files: Mapping[str, Mapping[str, str]]
    """By stage, the version of each file that the settings name; empty if one of them cannot be read."""
    packages: Mapping[str, Mapping[str, str]]
    """By stage, the versions of the packages that compute values of its output, as far as they are installed here."""
    present: Settings
    """The settings that the others were taken from."""

    @classmethod
    def of(cls, settings: Settings) -> "CurrentStages":
        """Return the stages under ``settings``.

        If a file that the settings name, such as a checkpoint, cannot be read, a warning is logged and the stage's
        files count as unchanged; a run of the stage reports the error.
        """
        stages = stage_dag(settings)
        return cls(
            stages,
            {name: stage.code_version(settings) for name, stage in stages.items()},
            {name: json.loads(json.dumps(stage.settings(settings))) for name, stage in stages.items()},
            {name: _files(stage, settings) for name, stage in stages.items()},
            {name: installed_versions(stage.packages(settings)) for name, stage in stages.items()},
            settings,
        )

    def not_current(
        self,
        records: Mapping[str, Record],
        raw: RawShard | None = None,
        version: str | None = None,
    ) -> dict[str, Status]:
        """Return the reason by stage that has no record, or a record of other settings, code, inputs or packages.

        A stage that waits for such a stage has the status of the latter.

        Args:
            raw: the raw shard as it is now; without it, the raw shard counts as unchanged.
            version: content version of ``raw``, if known; without it, a new stamp alone counts as a change.
        """
        found: dict[str, Status] = {}
        for name, stage in self.stages.items():
            waits_for = next((found[source] for source in stage.inputs if source in found), None)
            if status := waits_for or self._own_status(stage, records, raw, version):
                found[name] = status
        return found

    def _own_status(
        self, stage: Stage, records: Mapping[str, Record], raw: RawShard | None, version: str | None
    ) -> Status | None:
        name, record = stage.name, records.get(stage.name)
        if record is None:
            return Status(State.MISSING, f"no {name}" if records else "never materialized", name)
        if record.code_version != self.versions[name]:
            return Status(State.STALE, f"{name} stale: {self._what_changed(record)}", name)
        if raw is not None and RAW_SHARDS in stage.inputs and not _is_source(record.source, raw, version):
            return Status(State.STALE, f"{name} stale: {RAW_SHARDS} changed", name)
        for upstream in stage.inputs:
            if upstream in records and record.inputs.get(upstream) != records[upstream].data_version:
                return Status(State.STALE, f"{name} stale: {upstream} changed", name)
        # such as CLIP scores after clip.enabled was unset: the stage's own version does not show that
        if unused := record.inputs.keys() & _STAGES - set(stage.inputs):
            return Status(
                State.STALE, f"{name} stale: made from {', '.join(sorted(unused))}, which it no longer reads", name
            )
        if RAW_SHARDS in stage.inputs and record.source is not None:
            for format_name, version_now in stage.source_inputs(record.source.uri, self.present).items():
                if (before := record.inputs.get(format_name, "")) != version_now:
                    return Status(
                        State.STALE, f"{name} stale: {_reader_change(format_name, before, version_now)}", name
                    )
        for file, present in self.files[name].items():
            if record.inputs.get(file) != present:
                return Status(State.STALE, f"{name} stale: the file of {file} changed", name)
        if changes := changed_packages(record.packages, self.packages[name]):
            return Status(State.STALE, f"{name} stale: {', '.join(changes)}", name)
        return None

    def _what_changed(self, record: Record) -> str:
        """Return the changed settings; if none has changed, the change of the code."""
        before, now = dict(_leaves(record.settings)), dict(_leaves(self.settings[record.stage]))
        changes = [
            f"{name} {_short(before.get(name))} → {_short(now.get(name))}"
            for name in dict.fromkeys((*now, *before))
            if before.get(name) != now.get(name)
        ]
        if not changes:
            return f"code changed, version {record.code_version} → {self.versions[record.stage]}"
        return f"settings changed: {cut_list(changes, _CHANGES_NAMED)}"


def _reader_change(reader: str, before: str, now: str) -> str:
    """Return what has changed of the reader of a format: its code, if its settings are the same, else these."""
    if before.partition("-")[2] == now.partition("-")[2]:
        return f"code of {reader} changed, version {before} → {now}"
    return f"{reader} changed"


def _files(stage: Stage, settings: Settings) -> Mapping[str, str]:
    try:
        return stage.files(settings)
    except InterleavedError as error:
        logger.warning("the files of %s cannot be read and count as unchanged: %s", stage.name, error)
        return {}


def _is_source(source: RawSource | None, raw: RawShard, version: str | None) -> bool:
    if source is None:
        return False
    if version is not None and _kind(version) == _kind(source.version):
        return source.version == version
    return source.size == raw.size and seems_same(source.stamp, raw.stamp)


def _kind(version: str) -> str:
    """Return ``xxh3`` of ``xxh3:…``: versions of two kinds differ for the same content."""
    return version.partition(":")[0]


def _leaves(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested settings as single ones with dotted names, such as ``own.width.min``."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            # selection and scoring store their settings under this name, which is not part of the shown name
            yield from _leaves(value, "" if f"{prefix}{name}" == "settings" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: object) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"
