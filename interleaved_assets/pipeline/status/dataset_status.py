"""The status of shards: of every shard of the data set, from listings, or of some raw shards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from interleaved_assets.model.errors import InterleavedError, StorageError
from interleaved_assets.pipeline.raw.listing import RawShard, list_raw_files
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.run.failures import Failure, read_failures
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stored_records import (
    NOT_LISTED,
    Stamps,
    list_outputs,
    read_valid_records,
    recorded_stages,
)
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.pipeline.status.status import COMPLETE, CurrentStages, State, Status
from interleaved_assets.settings import Settings, StorageSettings

NOT_AS_RECORDED: Final = "its files are not those that were recorded"
VANISHED: Final = Status(
    State.VANISHED, "vanished: the raw shard is gone, its outputs are kept until interleaved forget"
)
VANISHED_UNUSED: Final = Status(
    State.VANISHED, "vanished: the raw shard is gone, nothing was made of it; interleaved forget removes its partition"
)


class ShardState(NamedTuple):
    """A shard with its status and its valid records."""

    key: str
    status: Status
    records: Mapping[str, Record]
    """By stage; empty if they cannot be read."""
    error: InterleavedError | None = None
    """The reason why the records cannot be read; the status has it too."""


@dataclass(frozen=True)
class DatasetStatus:
    """The shards in the storage, and the stages they are compared with.

    Attributes:
        raws: the raw shards by key; None if the raw root could not be listed.
        recorded: by shard, the stages that have a record; None if that was not listed.
        failed: by stage, the shards whose last run failed, as far as Dagster knows.
        failures: by stage and shard, the stored failures, which may be of an earlier raw shard.
        problem: the error if the raw root or a folder of it could not be listed, else empty. Absent shards may be in
            that folder, so none counts as vanished then.
        versions: content versions of raw shards by key, if the latest snapshot has them with their present stamps.
        listed: the stamps of outputs in a bucket, if they were listed.
        ignored: sorted paths, below the raw root, of files that are no shards; hidden files are left out.
    """

    storage: StorageSettings
    stages: CurrentStages
    raws: Mapping[str, RawShard] | None
    recorded: Mapping[str, list[str]] | None
    keys: Sequence[str]
    failed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    failures: Mapping[str, Mapping[str, Failure]] = field(default_factory=dict)
    problem: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    listed: Stamps = field(default_factory=lambda: NOT_LISTED)
    ignored: Sequence[str] = ()

    def valid_records(self, key: str) -> dict[str, Record]:
        """Return the shard's valid records by stage; of a listing, only records that it has are read."""
        stages = self.stages.stages if self.recorded is None else self.recorded.get(key, ())
        return read_valid_records(self.storage.shard(key), stages, self.listed)

    def look(self, key: str) -> ShardState:
        """Return the shard's records and the status that follows from them: ``unreadable`` if they cannot be read."""
        try:
            records = self.valid_records(key)
        except InterleavedError as error:
            return ShardState(key, Status(State.UNREADABLE, f"{State.UNREADABLE}: {error}"), {}, error)
        return ShardState(key, self.status(key, records), records)

    def shards(self) -> Iterator[ShardState]:
        """Yield :meth:`look` of every shard, in the order of the keys; many are read at a time."""
        return parallel_map(self.look, self.keys, threads=READERS)

    def status(self, key: str, records: Mapping[str, Record]) -> Status:
        """Return the status of the shard with these valid records."""
        if self.has_vanished(key):
            return VANISHED if (self.recorded or {}).get(key) else VANISHED_UNUSED
        return next(iter(self.not_current(key, records).values()), COMPLETE)

    def problem_of(self, key: str, status: Status) -> str:
        """Return the error with which a shard of this status failed, in one line; empty if it did not fail."""
        if status.state is not State.FAILED:
            return ""
        stored = self.failure_of(key, status)
        return " ".join(stored.error.split()) if stored else "its run ended before it reached the shard"

    def failure_of(self, key: str, status: Status) -> Failure | None:
        """Return the stored failure of a shard of this status, if it concerns the present raw shard, else None."""
        stored = self.failures.get(status.stage or "", {}).get(key)
        return stored if stored is not None and stored.concerns((self.raws or {}).get(key)) else None

    def not_current(self, key: str, records: Mapping[str, Record]) -> dict[str, Status]:
        """Return the reason for each stage that is not current; none for a vanished shard, which no run can mend."""
        if self.has_vanished(key):
            return {}
        raw = self.raws.get(key) if self.raws else None
        found = self.stages.not_current(records, raw, self.versions.get(key))
        return {name: self._with_cause(key, status) for name, status in found.items()}

    def has_vanished(self, key: str) -> bool:
        """Return whether the raw shard is gone, so that no run can make the shard; its records are not looked at."""
        return self.raws is not None and key not in self.raws and not self.problem

    def _with_cause(self, key: str, status: Status) -> Status:
        if status.stage is None or status.state is not State.MISSING:
            return status
        stored = key in self.failures.get(status.stage, ())
        if self.failure_of(key, status) or (not stored and key in self.failed.get(status.stage, ())):
            return Status(State.FAILED, f"{status.stage} failed", status.stage)
        if stored:
            text = f"{status.text}: {status.stage} failed, and the raw shard has changed since"
            return Status(State.MISSING, text, status.stage)
        if status.stage in (self.recorded or {}).get(key, ()):
            text = (
                f"no {status.stage}: {NOT_AS_RECORDED}; they were deleted, replaced or copied, or a run is writing them"
            )
            return Status(State.MISSING, text, status.stage)
        return status

    def stages_to_make(self, shard: ShardState) -> list[str]:
        """Return the stages that a run would make of the shard, in order; all if its records cannot be read."""
        unreadable = shard.error and not self.has_vanished(shard.key)
        return [*(self.stages.stages if unreadable else self.not_current(shard.key, shard.records))]


def read_dataset_status(
    settings: Settings,
    registered: Iterable[str] = (),
    failed: Mapping[str, AbstractSet[str]] | None = None,
) -> DatasetStatus:
    """Return the shards at the raw root and in the records: one listing of the former, one per stage of the latter.

    ``registered`` are the keys of partitions, which may be in neither.
    """
    stages = CurrentStages.of(settings)
    raws: dict[str, RawShard] | None = None
    problem, ignored = "", list[str]()
    try:
        listing = list_raw_files(settings.storage)
        raws = {raw.key: raw for raw in listing.shards}
        problem, ignored = listing.problem, listing.ignored
    except StorageError as error:
        problem = str(error)
    recorded = recorded_stages(settings.storage, stages.stages)
    listed = list_outputs(settings.storage, stages.stages.values())
    keys = sorted({*(raws or ()), *recorded, *registered})
    return DatasetStatus(
        storage=settings.storage,
        stages=stages,
        raws=raws,
        recorded=recorded,
        keys=keys,
        failed=failed or {},
        failures=read_failures(settings.storage, stages.stages),
        problem=problem,
        versions=snapshot_versions((raws or {}).values(), settings.storage),
        listed=listed,
        ignored=ignored,
    )


def status_of_raws(
    raws: Iterable[RawShard], settings: Settings, versions: Mapping[str, str], *, all_shards: bool = False
) -> DatasetStatus:
    """Return the same for these raw shards, without a listing of records, and without failures.

    Args:
        raws: the shards, as they are now.
        versions: content versions of raw shards by key, as far as known.
        all_shards: whether ``raws`` are all or most of the data set: outputs in a bucket are listed then.
    """
    stages, by_key = CurrentStages.of(settings), {raw.key: raw for raw in raws}
    listed = list_outputs(settings.storage, stages.stages.values()) if all_shards else NOT_LISTED
    return DatasetStatus(settings.storage, stages, by_key, None, [*by_key], versions=versions, listed=listed)
