"""The failure of a shard at a stage, as a file below the output root: its reason, its time and its raw shard.

A shard that failed has no record. Without this file, only the log of the run would give the reason. The file stays
until the stage succeeds.
"""

import logging
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from interleaved_assets.io.storage import atomic_output, files_below, join, read_small, remove_file
from interleaved_assets.model.errors import InterleavedError, StorageError, describe
from interleaved_assets.pipeline.raw.keys import is_key
from interleaved_assets.pipeline.raw.listing import RawShard, find_raw_shard, seems_same
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.settings import StorageSettings
from interleaved_assets.settings.shard_paths import FAILURES_FOLDER

logger = logging.getLogger(__name__)

_ENDING: Final = ".json"


class Failure(BaseModel):
    """The last failure of a shard at a stage."""

    model_config = ConfigDict(frozen=True)

    shard: str
    stage: str
    error: str
    """The sentence that the run reported."""
    failed_at: datetime
    raw_size: int | None = None
    raw_stamp: str | None = None
    """Size in bytes and stamp of the raw shard after the failure; None if they could not be read."""

    def concerns(self, raw: RawShard | None) -> bool:
        """Return whether the raw shard is the one that failed; True also if one of them is not known."""
        if raw is None or self.raw_stamp is None:
            return True
        return self.raw_size == raw.size and seems_same(self.raw_stamp, raw.stamp)

    @property
    def when(self) -> str:
        """The time, formatted for people."""
        return f"{self.failed_at:%Y-%m-%d %H:%M} UTC"


def store_failure(key: str, stage: str, error: BaseException, storage: StorageSettings) -> None:
    """Write the failure of a shard; an error of the storage is only logged, and what is no key has no such file."""
    if not is_key(key):
        return
    try:
        raw = find_raw_shard(key, storage)
    except InterleavedError:
        raw = None
    failure = Failure(
        shard=key,
        stage=stage,
        error=describe(error),
        failed_at=datetime.now(UTC).replace(microsecond=0),
        raw_size=raw.size if raw else None,
        raw_stamp=raw.stamp if raw else None,
    )
    try:
        with atomic_output(storage.shard(key).failure(stage), storage.options) as out:
            out.write(f"{failure.model_dump_json(indent=1)}\n".encode())
    except StorageError as unwritten:
        logger.warning("shard %s: the failure of %s is not stored: %s", key, stage, unwritten)


def remove_failure(key: str, stage: str, storage: StorageSettings) -> None:
    """Remove the failure of a shard, if one is stored; an error of the storage is only logged."""
    try:
        remove_file(storage.shard(key).failure(stage), storage.options)
    except StorageError as error:
        logger.warning("shard %s: the failure of %s is not removed: %s", key, stage, error)


def remove_record(key: str, stage: str, storage: StorageSettings) -> bool:
    """Remove the record of a shard that was made and could not be reported; return False if the storage fails.

    With its record the stage would count as done. A run would begin at the next stage, which the failure stops.
    """
    try:
        remove_file(storage.shard(key).record(stage), storage.options)
    except StorageError as error:
        logger.warning("shard %s: the record of %s is not removed: %s", key, stage, error)
        return False
    return True


def failed_keys(storage: StorageSettings, stage: str) -> list[str]:
    """Return the keys of the shards with a stored failure at ``stage``: one listing."""
    names = files_below(join(storage.output_root, f"{FAILURES_FOLDER}/{stage}"), storage.options)
    return sorted(key for name in names if name.endswith(_ENDING) and is_key(key := name.removesuffix(_ENDING)))


def read_failures(storage: StorageSettings, stages: Collection[str]) -> dict[str, dict[str, Failure]]:
    """Return the stored failures by stage and shard; a damaged file is left out with a warning."""
    places = [(stage, key) for stage in stages for key in failed_keys(storage, stage)]
    found: dict[str, dict[str, Failure]] = {stage: {} for stage in stages}

    def read(place: tuple[str, str]) -> Failure | None:
        stage, key = place
        uri = storage.shard(key).failure(stage)
        try:
            content = read_small(uri, storage.options)
            return None if content is None else Failure.model_validate_json(content)
        except ValidationError as error:
            logger.warning("%s is no failure of a shard, and is left out: %s", uri, error.errors()[0]["msg"])
            return None

    for (stage, key), failure in zip(places, parallel_map(read, places, threads=READERS), strict=True):
        if failure is not None:
            found[stage][key] = failure
    return found
