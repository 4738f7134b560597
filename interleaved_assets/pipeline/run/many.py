"""Many shards through the stages, each on its own: a failed shard does not stop the others."""

import itertools
import logging
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from interleaved_assets.model.errors import ShardError, ShardTimeout, StorageError, StorageUnavailable, describe
from interleaved_assets.pipeline.run.failures import FailureLog
from interleaved_assets.pipeline.run.one import take_through, take_together
from interleaved_assets.pipeline.run.ray import on_cluster
from interleaved_assets.pipeline.run.stage import ShardResult, Stage, StageOutcome
from interleaved_assets.pipeline.run.threads import on_threads, too_slow
from interleaved_assets.pipeline.run.throughput import ENOUGH, StepProgress, write_throughput
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 30.0

Shown = TypeVar("Shown")


class ShownOutcome(NamedTuple, Generic[Shown]):
    """A shard that was taken through a stage, and the result of ``then`` for it."""

    outcome: StageOutcome
    shown: Shown


_Found = tuple[str, ShownOutcome[Shown] | Exception]
"""A shard's key with its result or its error."""


def run_shards(
    keys: Sequence[str],
    stages: Iterable[Stage],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    threads: int | None = None,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Take shards through ``stages``, without an orchestrator: the same outputs, records and failures.

    ``run.shards_per_run`` shards at a time go through all stages, so that the first final tars come early. Of these,
    ``threads`` shards are processed at once, by default ``run.parallel_shards``; on a device all are processed
    together. A shard that failed at a stage is not taken through the later stages.
    """
    in_order = tuple(stages)
    for start in range(0, len(keys), settings.run.shards_per_run):
        left = list(keys[start : start + settings.run.shards_per_run])
        for stage in in_order:
            failed = set()
            for one in take_many(stage, left, settings, then=then, threads=threads):
                if isinstance(one.result, Exception):
                    failed.add(one.key)
                yield one
            left = [key for key in left if key not in failed]


def take_many(
    stage: Stage,
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    threads: int | None = None,
    cluster: bool = False,
    log: Callable[[str], object] = logger.info,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Take shards through ``stage``, and yield each with its outcome or its error as it completes.

    While the storage does not answer, a shard is tried ``run.storage_tries`` times. A shard that takes longer than
    ``run.max_shard_seconds`` fails, except at a stage that takes its shards together in this process.

    Args:
        then: called with each outcome, in the process that made the shard. It may not raise, and for a cluster its
            result must be picklable.
        threads: shards at a time in this process, by default ``run.parallel_shards``.
        cluster: whether the shards are tasks of the Ray cluster of this machine.
        log: called every 30 seconds with a line that says how many shards are done, at what speed, and how many are
            left.
    """
    progress = StepProgress(stage.name, len(keys), log)
    failures = FailureLog(stage.name, settings.storage)
    work = _Work(stage, settings, then)
    for one in work.on_cluster(keys) if cluster else work.here(keys, threads or settings.run.parallel_shards):
        progress.tick()
        if one is None:
            continue
        if isinstance(one.result, ShownOutcome):
            progress.add(one.result.outcome, one.host, one.queue_seconds)
            failures.succeeded(one.key)
        else:
            progress.add(None, one.host, one.queue_seconds)
            failures.failed(one.key, one.result)
        yield one
    whole = progress.end()
    if whole.made >= ENOUGH:
        try:
            write_throughput(whole, settings.storage)
        except StorageError as error:
            log(f"the report lacks how fast {stage.name} went: {error}")  # only logged, because the shards are complete


@dataclass(frozen=True)
class _Work(Generic[Shown]):
    """The work of one stage on any shards, in this process or in a Ray worker.

    Its methods yield None about once a second while no shard is done.
    """

    stage: Stage
    settings: Settings
    then: Callable[[StageOutcome], Shown]

    def here(self, keys: Sequence[str], threads: int) -> Iterator[ShardResult[ShownOutcome[Shown]] | None]:
        """Do the work in this process."""
        take = self._together if self.stage.together else partial(self._on_threads, threads=threads)
        for found in self._tried(keys, take):
            yield None if found is None else ShardResult(found[0], self.stage.name, found[1])

    def on_cluster(self, keys: Sequence[str]) -> Iterator[ShardResult[ShownOutcome[Shown]] | None]:
        """Give the work to the Ray cluster of this machine."""
        return on_cluster(
            self.on_worker,
            keys,
            self.stage.name,
            together=self.stage.together is not None,
            gpu=needs_gpu(self.stage, self.settings.clip),
            limit_s=self.settings.run.max_shard_seconds,
            plugins=self.settings.plugins,
        )

    def on_worker(self, keys: Sequence[str]) -> Iterator[_Found[Shown] | None]:
        """Do the work of one Ray task."""
        return self._tried(
            keys, self._together_in_time if self.stage.together else partial(self._on_threads, threads=1)
        )

    def _tried(
        self, keys: Sequence[str], take: Callable[[Sequence[str]], Iterator[_Found[Shown] | None]]
    ) -> Iterator[_Found[Shown] | None]:
        """Yield the results of ``take``, and try shards again whose storage did not answer."""
        for attempt in itertools.count(1):
            unavailable = []
            for found in take(keys):
                if found and isinstance(found[1], StorageUnavailable) and attempt < self.settings.run.storage_tries:
                    unavailable.append(found[0])
                else:
                    yield found
            if not unavailable:
                return
            keys = unavailable
            time.sleep(_pause(attempt))

    def _on_threads(self, keys: Sequence[str], threads: int) -> Iterator[_Found[Shown] | None]:
        def take(key: str) -> ShownOutcome[Shown]:
            outcome = take_through(self.stage, key, self.settings)
            return ShownOutcome(outcome, self.then(outcome))

        limit_s = self.settings.run.max_shard_seconds
        return on_threads(take, keys, self.stage.name, threads=threads, limit_s=limit_s)

    def _together(self, keys: Sequence[str]) -> Generator[_Found[Shown], None, None]:
        """Take shards with one call of the stage. An error that ends it is the error of each shard that is left."""
        left = dict.fromkeys(keys)
        try:
            for key, outcome in take_together(self.stage, keys, self.settings):
                del left[key]
                yield key, ShownOutcome(outcome, self.then(outcome)) if isinstance(outcome, StageOutcome) else outcome
        except Exception as error:  # any error that ends the work of all, of the model or the device
            if not left:
                raise
            # every shard gets the message; only the first keeps the traceback of a defect
            first, *others = left
            yield first, error
            yield from ((key, ShardError(describe(error))) for key in others)

    def _together_in_time(self, keys: Sequence[str]) -> Iterator[_Found[Shown] | None]:
        """Take shards together on a thread. One that takes too long fails, and another call takes those after it."""
        left, limit_s = dict.fromkeys(keys), self.settings.run.max_shard_seconds
        while left:
            results = self._together(list(left))
            for one in on_threads(results.send, [None] * len(left), self.stage.name, threads=1, limit_s=limit_s):
                if one is None:
                    yield None
                elif isinstance(one[1], ShardTimeout):
                    slow = next(iter(left))  # shards are processed in order
                    del left[slow]
                    yield slow, too_slow(slow, self.stage.name, limit_s)
                    break
                elif isinstance(one[1], Exception):
                    raise one[1]
                else:
                    del left[one[1][0]]
                    yield one[1]


def needs_gpu(stage: Stage, clip: ClipSettings) -> bool:
    """Return whether a Ray task of ``stage`` takes a GPU of its node, and else a CPU.

    A task with a GPU takes no CPU, so that it does not wait for one behind the tasks of other stages.
    """
    return stage.together is not None and clip.device != "cpu"


def _pause(attempt: int) -> float:
    """Return seconds to wait after an attempt, numbered from 1: random, and longer on average each time."""
    return random.uniform(0, min(_PAUSE_SECONDS, 2 ** (attempt - 1)))
