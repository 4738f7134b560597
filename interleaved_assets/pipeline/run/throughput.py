"""The speed of a stage: progress of a step in its log, and the figures of its last step for the report."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from interleaved_assets.io.storage import atomic_output, join, read_small
from interleaved_assets.pipeline.run.stage import DEVICE_WAIT, StageOutcome
from interleaved_assets.settings import StorageSettings

logger = logging.getLogger(__name__)

ENOUGH: Final = 10
"""Shards that a step must make before its figures are meaningful."""
_FOLDER: Final = "state/throughput"
_EVERY_S: Final = 30.0
_HOSTS_SHOWN: Final = 8


@dataclass
class Throughput:
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
    hosts: dict[str, int] = field(default_factory=dict)
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
        rates = [
            f"{self.rate(self.shards):.2f} shards/s",
            f"{self.rate(self.images):,.0f} images/s",
            f"{self.rate(self.image_bytes) / 1e6:,.1f} MB/s",
        ]
        if self.hosts:
            rates.append(f"{self.mean_queue_seconds:.1f} s in the queue")
            shown = [f"{host} {self.rate(count):.2f}" for host, count in Counter(self.hosts).most_common(_HOSTS_SHOWN)]
            more = ", …" if len(self.hosts) > _HOSTS_SHOWN else ""
            rates.append(f"shards/s by host: {', '.join(shown)}{more}")
        return ", ".join(rates)


_THROUGHPUT: Final = TypeAdapter(Throughput)


class StepProgress:
    """The progress of one step: a line in its log every 30 seconds, with the time left."""

    def __init__(
        self, stage: str, total: int, log: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._log, self._clock = total, log, clock
        self._began = self._told = clock()
        self._done = Throughput(stage)

    def add(self, outcome: StageOutcome | None, host: str, queue_seconds: float) -> None:
        """Count a shard; ``outcome`` is None if it failed."""
        done = self._done
        done.shards += 1
        done.queue_seconds += queue_seconds
        if host:
            done.hosts[host] = done.hosts.get(host, 0) + 1
        if outcome is None:
            done.failed += 1
        elif not outcome.unchanged:
            done.made += 1
            done.images += outcome.record.counts_in.images
            done.image_bytes += outcome.record.counts_in.image_bytes
            done.device_wait_seconds += float(outcome.record.notes.get(DEVICE_WAIT, 0))

    def tick(self) -> None:
        """Log a line if it is due. Call this about once a second."""
        now = self._clock()
        if now - self._told >= _EVERY_S:
            self._told = now
            self._log(self._line())

    def end(self) -> Throughput:
        """Return the figures of the whole step, and log them if it took long enough to have a line of progress."""
        done = self._measured()
        if self._told != self._began:
            self._log(f"{done.stage}: {done.shards:,} shards in {_duration(done.seconds)}; {done.text}")
        return done

    def _line(self) -> str:
        done = self._measured()
        failed = f", {done.failed:,} failed" if done.failed else ""
        left = "no shard is done yet"
        if done.shards:
            left = f"{_duration((self._total - done.shards) / done.rate(done.shards))} left"
        return f"{done.stage}: {done.shards:,} of {self._total:,} shards{failed}, {left}; {done.text}"

    def _measured(self) -> Throughput:
        self._done.seconds = self._clock() - self._began
        return self._done


def write_throughput(done: Throughput, storage: StorageSettings) -> None:
    """Store the figures of a step for the report, in place of those of the stage's previous step."""
    with atomic_output(_uri(done.stage, storage), storage.options) as out:
        out.write(json.dumps(asdict(done), sort_keys=True, indent=1).encode())


def read_throughput(stages: Iterable[str], storage: StorageSettings) -> list[Throughput]:
    """Return the stored figures of these stages; a file that holds none is left out with a warning."""
    found: list[Throughput] = []
    for uri in (_uri(stage, storage) for stage in stages):
        if (content := read_small(uri, storage.options)) is not None:
            try:
                found.append(_THROUGHPUT.validate_json(content))
            except ValidationError as error:
                logger.warning("%s has no figures of a step, and is left out: %s", uri, error.errors()[0]["msg"])
    return found


def _uri(stage: str, storage: StorageSettings) -> str:
    return join(storage.output_root, f"{_FOLDER}/{stage}.json")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
