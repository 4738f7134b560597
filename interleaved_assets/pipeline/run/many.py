"""Many shards through the stages, each on its own: a failed shard does not stop the others."""

import itertools
import logging
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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
    ``threads`` shards are processed at once, by default ``run.parallel_shards``, and each goes on to its next stage
    when it is done with one; on a device all are processed together. A shard that failed at a stage is not taken
    through the later stages.
    """
    groups: list[list[Stage]] = []
    for stage in stages:
        if groups and not (stage.together or groups[-1][-1].together):
            groups[-1].append(stage)
        else:
            groups.append([stage])
    for start in range(0, len(keys), settings.run.shards_per_run):
        left = list(keys[start : start + settings.run.shards_per_run])
        for group in groups:
            failed = set()
            take = partial(take_many, group[0]) if group[0].together else partial(_take_through_all, group)
            for one in take(left, settings, then=then, threads=threads or settings.run.parallel_shards):
                if isinstance(one.result, Exception):
                    failed.add(one.key)
                yield one
            left = [key for key in left if key not in failed]


class _Step(NamedTuple):
    """A shard at one of several stages, by the number of the stage."""

    key: str
    number: int


def _take_through_all(
    stages: Sequence[Stage],
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    threads: int,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Do the work of :func:`take_many` for several stages: a shard does not wait for others between two stages."""
    busy = dict.fromkeys((stage.name for stage in stages), 0.0)  # the clock of each stage: the seconds spent in it
    logs = [
        _StageLog(stage.name, len(keys), settings, logger.info, partial(_seconds, busy, stage.name, threads))
        for stage in stages
    ]
    limit_s = settings.run.max_shard_seconds

    def take(step: _Step) -> ShownOutcome[Shown]:
        outcome = take_through(stages[step.number], step.key, settings)
        return ShownOutcome(outcome, then(outcome))

    def after(step: _Step, result: ShownOutcome[Shown] | Exception) -> list[_Step]:
        goes_on = isinstance(result, ShownOutcome) and step.number + 1 < len(stages)
        return [step._replace(number=step.number + 1)] if goes_on else []

    steps = [_Step(key, 0) for key in keys]
    for attempt in itertools.count(1):
        unavailable = []
        for found in on_threads(take, steps, "stage", threads=threads, limit_s=limit_s, after=after):
            for log in logs:
                log.tick()
            if found is None:
                continue
            step, result = found
            name = stages[step.number].name
            if isinstance(result, StorageUnavailable) and attempt < settings.run.storage_tries:
                unavailable.append(step)
                continue
            if isinstance(result, ShardTimeout):
                result = too_slow(step.key, name, limit_s)
            busy[name] += result.outcome.seconds if isinstance(result, ShownOutcome) else 0
            one = ShardResult(step.key, name, result)
            logs[step.number].add(one)
            yield one
        if not unavailable:
            break
        steps = unavailable
        time.sleep(_pause(attempt))
    for log in logs:
        log.end()


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
    stage_log = _StageLog(stage.name, len(keys), settings, log)
    work = _Work(stage, settings, then)
    for one in work.on_cluster(keys) if cluster else work.here(keys, threads or settings.run.parallel_shards):
        stage_log.tick()
        if one is None:
            continue
        stage_log.add(one)
        yield one
    stage_log.end()


def _seconds(busy: Mapping[str, float], stage: str, threads: int) -> float:
    return busy[stage] / threads


class _StageLog:
    """The progress, the failures and the speed of one stage, as they are logged and stored."""

    def __init__(
        self,
        stage: str,
        total: int,
        settings: Settings,
        log: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage, self._storage, self._log = stage, settings.storage, log
        self._progress = StepProgress(stage, total, log, clock)
        self._failures = FailureLog(stage, settings.storage)
        self.tick = self._progress.tick

    def add(self, one: ShardResult[ShownOutcome[Shown]]) -> None:
        """Count a shard, and write or remove its failure."""
        if isinstance(one.result, ShownOutcome):
            self._progress.add(one.result.outcome, one.host, one.queue_seconds)
            self._failures.succeeded(one.key)
        else:
            self._progress.add(None, one.host, one.queue_seconds)
            self._failures.failed(one.key, one.result)

    def end(self) -> None:
        """Store the speed of the stage, if it made enough shards."""
        whole = self._progress.end()
        if whole.made >= ENOUGH:
            try:
                write_throughput(whole, self._storage)
            except StorageError as error:  # only logged, because the shards are complete
                self._log(f"the report lacks how fast {self._stage} went: {error}")


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
