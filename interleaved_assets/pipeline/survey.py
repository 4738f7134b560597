"""Every shard there is, wherever it shows: below the raw root, in records, in Dagster; and how each of them stands."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from interleaved_assets.io.storage import filesystem, join, storage_errors
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.chain import chain
from interleaved_assets.pipeline.raw import RawShard, list_raw_shards
from interleaved_assets.pipeline.staleness import Present, Recorded, State, Status, read_stages
from interleaved_assets.pipeline.watch import versions_looked_at
from interleaved_assets.settings import Settings

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
    """

    settings: Settings
    present: Present
    raws: Mapping[str, RawShard] | None
    recorded: Mapping[str, list[str]]
    keys: list[str]
    failed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    problem: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def recorded_of(self, key: str) -> Recorded:
        """The shard's records; those alone are read that the listing showed.

        Raises:
            ShardError: one of them is no record of ours.
        """
        return read_stages(key, self.settings, self.recorded.get(key, ()))

    def status(self, key: str, recorded: Recorded) -> Status:
        """How the shard stands, given what is recorded of it."""
        raw = None
        if self.raws is not None:
            raw = self.raws.get(key)
            if raw is None:
                return VANISHED if recorded.records else VANISHED_UNUSED
        status = self.present.status(recorded.records, raw, recorded.claims, self.versions.get(key))
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
        StorageError: the records cannot be listed, or a file that the settings name cannot be read.
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
    return Survey(settings, Present.of(settings), raws, recorded, keys, failed or {}, problem, versions)


def recorded_stages(settings: Settings) -> dict[str, list[str]]:
    """Every shard that has a record, with the stages that have one: a listing per stage, nothing is read.

    Raises:
        StorageError: the records cannot be listed.
    """
    storage = settings.storage
    found: dict[str, list[str]] = {}
    for name in chain(settings):
        folder = join(storage.output_root, f"records/{name}")
        with storage_errors(folder, "list"):
            fs, path = filesystem(folder, storage.options)
            fs.invalidate_cache(path)
            start = len(path.rstrip("/")) + 1
            for file in fs.find(path):
                if file.endswith(".json"):
                    found.setdefault(file[start:].removesuffix(".json"), []).append(name)
    return found
