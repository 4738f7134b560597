"""The status of every shard of the data set, from one listing of the raw root and one listing of records per stage."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.raw.listing import RawShard, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import versions_looked_at
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.status import CurrentStages, State, Status
from interleaved_assets.pipeline.stored_records import listed_stamps, read_valid_records, recorded_stages
from interleaved_assets.settings import Settings

VANISHED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, its outputs are left as they are")
VANISHED_UNUSED: Final = Status(State.VANISHED, "vanished: the raw shard is gone, nothing was made of it")


@dataclass(frozen=True)
class DatasetStatus:
    """What is in the storage, and the settings it is compared with.

    Attributes:
        settings: in force now.
        present: the stages in force.
        raws: the raw shards by key; None where the raw root could not be listed.
        recorded: for each shard with a record, the stages that have one.
        keys: of all shards, sorted.
        failed: for each stage, the shards whose last run failed, as far as known.
        problem: why the raw root could not be listed.
        versions: of the raw shards that the sensor has looked at as they are now.
        stamp_at: stamp of the output at a URI, where outputs were listed.
    """

    settings: Settings
    present: CurrentStages
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
        return read_valid_records(self.settings.storage.shard(key), self.recorded.get(key, ()), self.stamp_at)

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


def read_dataset_status(
    settings: Settings,
    registered: Iterable[str] = (),
    failed: Mapping[str, AbstractSet[str]] | None = None,
) -> DatasetStatus:
    """Look at the raw root and at the records: one listing of the former, one per stage of the latter.

    Args:
        registered: keys that Dagster has, which may have neither.
        failed: for each stage, the shards whose last run failed.

    Raises:
        StorageError: the records cannot be listed.
    """
    present = CurrentStages.of(settings)
    raws: dict[str, RawShard] | None = None
    problem = ""
    try:
        raws = {raw.key: raw for raw in list_raw_shards(settings.storage)}
    except StorageError as error:
        problem = str(error)
    recorded = recorded_stages(settings.storage, present.stages)
    keys = sorted({*(raws or ()), *recorded, *registered})
    versions = versions_looked_at((raws or {}).values(), settings.storage)
    stamp_at = listed_stamps(settings.storage, present.stages)
    return DatasetStatus(settings, present, raws, recorded, keys, failed or {}, problem, versions, stamp_at)
