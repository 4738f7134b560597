"""The progress of a step: its lines in the log, its failures, and the figures of its speed for the report."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from pydantic import BaseModel, ValidationError

from interleaved_assets.io.storage import atomic_output, join, read_small
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.run.failures import failed_keys, remove_failure, store_failure
from interleaved_assets.pipeline.run.stage import DEVICE_WAIT, ShardResult, StageOutcome
from interleaved_assets.settings import StorageSettings

logger = logging.getLogger(__name__)

_ENOUGH: Final = 10
"""Shards that a step must make before its figures are meaningful."""
_FOLDER: Final = "state/throughput"
_EVERY_S: Final = 30.0
_HOSTS_SHOWN: Final = 8


class Throughput(BaseModel):
    """Figures of a step so far. Shards that were current count as shards, their images do not."""

    stage: str
    seconds: float = 0.0
    """Seconds since the step began."""
    shards: int = 0
    made: int = 0
    """Shards that were not current."""
    failed: int = 0
    images: int = 0
    image_bytes: int = 0
    queue_seconds: float = 0.0
    """Seconds that shards waited for a worker, summed over the shards."""
    device_wait_seconds: float = 0.0
    hosts: dict[str, int] = {}
    """Shards by node of the cluster; empty in one process."""

    def rate(self, count: float) -> float:
        """Return ``count`` per second of the step; 0 before anything was done."""
        return count / self.seconds if self.seconds else 0.0

    @property
    def mean_queue_seconds(self) -> float:
        """Mean seconds that a shard waited for a worker."""
        return self.queue_seconds / self.shards if self.shards else 0.0

    @property
    def text(self) -> str:
        rates = [f"{self.rate(self.shards):.2f} shards/s"]
        if self.image_bytes or not self.images:  # a stage that measures texts reads no image
            rates += [f"{self.rate(self.images):,.0f} images/s", f"{self.rate(self.image_bytes) / 1e6:,.1f} MB/s"]
        if self.hosts:
            rates.append(f"{self.mean_queue_seconds:.1f} s in the queue")
            shown = [f"{host} {self.rate(count):.2f}" for host, count in Counter(self.hosts).most_common(_HOSTS_SHOWN)]
            more = ", …" if len(self.hosts) > _HOSTS_SHOWN else ""
            rates.append(f"shards/s by host: {', '.join(shown)}{more}")
        return ", ".join(rates)


class StepProgress:
    """The progress of one stage over many shards: a line in its log every 30 seconds, with the time left.

    Args:
        at_once: shards that several stages take at once; the seconds of a stage are then those that its shards took,
            divided by this. None for a stage by itself: its seconds are those since it began.
    """

    def __init__(
        self,
        stage: str,
        total: int,
        storage: StorageSettings,
        log: Callable[[str], object],
        at_once: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._storage, self._log, self._at_once, self._clock = total, storage, log, at_once, clock
        self._began = clock()
        self._told = self._busy = 0.0
        self._done = Throughput(stage=stage)
        try:
            # one listing, so that the success of a shard without a stored failure takes no request
            self._failed_before = set(failed_keys(storage, stage))
        except StorageError as error:
            self._failed_before = set()
            logger.warning("failures of %s that are stored are not removed: %s", stage, error)

    def add(self, one: ShardResult[StageOutcome]) -> None:
        """Count a shard; store its failure, or remove that of an earlier run."""
        done = self._done
        done.shards += 1
        done.queue_seconds += one.queue_seconds
        if one.host:
            done.hosts[one.host] = done.hosts.get(one.host, 0) + 1
        if isinstance(one.result, Exception):
            done.failed += 1
            store_failure(one.key, one.stage, one.result, self._storage)
            return
        self._busy += one.result.seconds
        if one.key in self._failed_before:
            remove_failure(one.key, one.stage, self._storage)
        if not one.result.unchanged:
            record = one.result.record
            done.made += 1
            done.images += record.counts_in.images
            done.image_bytes += record.counts_in.image_bytes
            done.device_wait_seconds += float(record.notes.get(DEVICE_WAIT, 0))

    def tick(self) -> None:
        """Log a line if it is due. Call this about once a second."""
        done = self._measured()
        if done.seconds - self._told >= _EVERY_S:
            self._told = done.seconds
            failed = f", {done.failed:,} failed" if done.failed else ""
            left = "no shard is done yet"
            if done.shards:
                left = f"{_duration((self._total - done.shards) / done.rate(done.shards))} left"
            self._log(f"{done.stage}: {done.shards:,} of {self._total:,} shards{failed}, {left}; {done.text}")

    def end(self) -> None:
        """Log the figures of a step that took long enough for a line of progress; store them if it made enough."""
        done = self._measured()
        if self._told:
            self._log(f"{done.stage}: {done.shards:,} shards in {_duration(done.seconds)}; {done.text}")
        if done.made >= _ENOUGH:
            try:
                with atomic_output(_uri(done.stage, self._storage), self._storage.options) as out:
                    out.write(done.model_dump_json(indent=1).encode())
            except StorageError as error:  # only logged, because the shards are complete
                self._log(f"the report lacks how fast {done.stage} went: {error}")

    def _measured(self) -> Throughput:
        self._done.seconds = self._busy / self._at_once if self._at_once else self._clock() - self._began
        return self._done


def read_throughput(stages: Iterable[str], storage: StorageSettings) -> list[Throughput]:
    """Return the figures that the last step of each of these stages stored; a damaged file is left out."""
    found: list[Throughput] = []
    for uri in (_uri(stage, storage) for stage in stages):
        if (content := read_small(uri, storage.options)) is not None:
            try:
                found.append(Throughput.model_validate_json(content))
            except ValidationError as error:
                logger.warning("%s has no figures of a step, and is left out: %s", uri, error.errors()[0]["msg"])
    return found


def _uri(stage: str, storage: StorageSettings) -> str:
    return join(storage.output_root, f"{_FOLDER}/{stage}.json")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
