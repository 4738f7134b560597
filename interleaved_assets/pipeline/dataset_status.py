"""The status of every shard of the data set, from one listing of the raw root and one listing of records per stage."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.raw.listing import RawShard, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.status import CurrentStages, State, Status
from interleaved_assets.pipeline.stored_records import listed_stamps, read_valid_records, recorded_stages
from interleaved_assets.settings import Settings, StorageSettings

VANISHED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, its outputs are left as they are")
VANISHED_UNUSED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, nothing was made of it")


@dataclass(frozen=True)
class DatasetStatus:
    """The shards in the storage, and the stages they are compared with.

    Attributes:
        storage: the roots that were listed.
        stages: the stages under the present settings.
        raws: the raw shards by key; None if the raw root could not be listed.
        recorded: by shard, the stages that have a record.
        keys: of all shards, sorted.
        failed: by stage, the shards whose last run failed, as far as known.
        problem: the error if the raw root could not be listed, else empty.
        versions: content versions of raw shards by key, if the latest snapshot has them with their present stamps.
        stamp_at: returns the stamp of the output at a URI; None if outputs were not listed.
    """

    storage: StorageSettings
    stages: CurrentStages
    raws: Mapping[str, RawShard] | None
    recorded: Mapping[str, list[str]]
    keys: list[str]
    failed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    problem: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    stamp_at: Callable[[str], str | None] | None = None

    def valid_records(self, key: str) -> dict[str, Record]:
        """The shard's valid records by stage; only records that were listed are read.

        Raises:
            ShardError: a file is not a record.
        """
        return read_valid_records(self.storage.shard(key), self.recorded.get(key, ()), self.stamp_at)

    def status(self, key: str, records: Mapping[str, Record]) -> Status:
        """The status of the shard with these valid records."""
        raw = None
        if self.raws is not None:
            raw = self.raws.get(key)
            if raw is None:
                return VANISHED if records else VANISHED_UNUSED
        status = self.stages.status(records, raw, self.versions.get(key))
        if status.stage is not None and status.state is State.MISSING and key in self.failed.get(status.stage, ()):
            return Status(State.FAILED, f"{status.stage} failed: its error stands on the shard", status.stage)
        return status


def read_dataset_status(
    settings: Settings,
    registered: Iterable[str] = (),
    failed: Mapping[str, AbstractSet[str]] | None = None,
) -> DatasetStatus:
    """SnapshotChanges at the raw root and at the records: one listing of the former, one per stage of the latter.

    Args:
        settings: the present settings.
        registered: keys of registered partitions, which may have neither a raw shard nor a record.
        failed: by stage, the shards whose last run failed.

    Raises:
        StorageError: the records, outputs or snapshots cannot be listed.
    """
    stages = CurrentStages.of(settings)
    raws: dict[str, RawShard] | None = None
    problem = ""
    try:
        raws = {raw.key: raw for raw in list_raw_shards(settings.storage)}
    except StorageError as error:
        problem = str(error)
    recorded = recorded_stages(settings.storage, stages.stages)
    keys = sorted({*(raws or ()), *recorded, *registered})
    versions = snapshot_versions((raws or {}).values(), settings.storage)
    stamp_at = listed_stamps(settings.storage, stages.stages)
    return DatasetStatus(settings.storage, stages, raws, recorded, keys, failed or {}, problem, versions, stamp_at)
