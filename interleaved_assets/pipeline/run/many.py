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
from interleaved_assets.pipeline.run.processes import on_processes
from interleaved_assets.pipeline.run.ray import on_cluster
from interleaved_assets.pipeline.run.stage import ShardResult, Stage, StageOutcome
from interleaved_assets.pipeline.run.threads import on_threads
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


def run_shards(
    keys: Sequence[str],
    stages: Iterable[Stage],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    jobs: int | None = None,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Take shards through ``stages``, without an orchestrator: the same outputs, records and failures.

    ``run.shards_per_run`` shards at a time go through all stages, so that the first final tars come early. Of these,
    ``jobs`` shards are processed at once, by default ``run.parallel_shards``, and each goes on to its next stage
    when it is done with one; on a device all are processed together. A shard that failed at a stage is not taken
    through the later stages. ``then`` is as for :func:`take_many`.
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
            for one in _take(group, left, settings, then=then, jobs=jobs):
                if isinstance(one.result, Exception):
                    failed.add(one.key)
                yield one
            left = [key for key in left if key not in failed]


class _Step(NamedTuple):
    """A shard at one of several stages, by the number of the stage."""

    key: str
    number: int


_Found = tuple[_Step, ShownOutcome[Shown] | Exception]
"""A shard at a stage with its result or its error."""


def take_many(
    stage: Stage,
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    jobs: int | None = None,
    cluster: bool = False,
    log: Callable[[str], object] = logger.info,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Take shards through ``stage``, and yield each with its outcome or its error as it completes.

    Several shards are processed at once in worker processes of this machine. A shard that ends its worker fails. While
    the storage does not answer, a shard is tried ``run.storage_tries`` times. A shard that takes longer than
    ``run.max_shard_seconds`` fails, except at a stage that takes its shards together in this process.

    Args:
        then: called with each outcome, in the process that made the shard. It may not raise, and cloudpickle must be
            able to pickle it and its result.
        jobs: shards at a time, by default ``run.parallel_shards``. One is processed in this process.
        cluster: whether the shards are tasks of the Ray cluster of this machine.
        log: called every 30 seconds with a line that says how many shards are done, at what speed, and how many are
            left.
    """
    if not cluster:
        yield from _take([stage], keys, settings, then=then, jobs=jobs, log=log)
        return
    stage_log = _StageLog(stage.name, len(keys), settings, log)
    for one in on_cluster(
        _ClusterWork(stage, settings, then),
        keys,
        stage.name,
        together=stage.together is not None,
        gpu=needs_gpu(stage, settings.clip),
        limit_s=settings.run.max_shard_seconds,
        plugins=settings.plugins,
    ):
        stage_log.tick()
        if one is not None:
            stage_log.add(one)
            yield one
    stage_log.end()


def _take(
    stages: Sequence[Stage],
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    jobs: int | None = None,
    log: Callable[[str], object] = logger.info,
) -> Iterator[ShardResult[ShownOutcome[Shown]]]:
    """Do the work of :func:`take_many` on this machine, for one stage or for several that take shards one by one."""
    jobs = min(jobs or settings.run.parallel_shards, max(1, len(keys)))
    busy = dict.fromkeys((stage.name for stage in stages), 0.0)
    together = stages[0].together is not None
    logs = [
        # stages that share their workers have each its own clock: the seconds spent in it
        _StageLog(
            stage.name, len(keys), settings, log, *([] if together else [partial(_seconds, busy, stage.name, jobs)])
        )
        for stage in stages
    ]
    take = partial(_together, stages[0]) if together else partial(_one_by_one, stages, jobs=jobs)
    for found in _tried([_Step(key, 0) for key in keys], partial(take, settings=settings, then=then), settings):
        for of_stage in logs:
            of_stage.tick()
        if found is None:
            continue
        step, result = found
        name = stages[step.number].name
        busy[name] += result.outcome.seconds if isinstance(result, ShownOutcome) else 0
        one = ShardResult(step.key, name, result)
        logs[step.number].add(one)
        yield one
    for of_stage in logs:
        of_stage.end()


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


def _tried(
    steps: Sequence[_Step],
    take: Callable[[Sequence[_Step]], Iterator[_Found[Shown] | None]],
    settings: Settings,
) -> Iterator[_Found[Shown] | None]:
    """Yield the results of ``take``, and try steps again for which the storage did not answer."""
    for attempt in itertools.count(1):
        unavailable = []
        for found in take(steps):
            if found and isinstance(found[1], StorageUnavailable) and attempt < settings.run.storage_tries:
                unavailable.append(found[0])
            else:
                yield found
        if not unavailable:
            return
        steps = unavailable
        time.sleep(_pause(attempt))


def _one_by_one(
    stages: Sequence[Stage],
    steps: Sequence[_Step],
    *,
    settings: Settings,
    then: Callable[[StageOutcome], Shown],
    jobs: int,
) -> Iterator[_Found[Shown] | None]:
    """Take each shard through ``stages`` from its step on; it does not wait for others between two stages."""
    limit_s = settings.run.max_shard_seconds

    def take(step: _Step) -> ShownOutcome[Shown]:
        outcome = take_through(stages[step.number], step.key, settings)
        return ShownOutcome(outcome, then(outcome))

    def after(step: _Step, result: ShownOutcome[Shown] | Exception) -> list[_Step]:
        goes_on = isinstance(result, ShownOutcome) and step.number + 1 < len(stages)
        return [step._replace(number=step.number + 1)] if goes_on else []

    def named(step: _Step) -> tuple[str, str]:
        return step.key, stages[step.number].name

    if jobs == 1:
        return on_threads(take, steps, named=named, threads=1, limit_s=limit_s, after=after)
    return on_processes(take, steps, named=named, processes=jobs, limit_s=limit_s, after=after)


def _together(
    stage: Stage, steps: Sequence[_Step], *, settings: Settings, then: Callable[[StageOutcome], Shown]
) -> Generator[_Found[Shown], None, None]:
    """Take shards with one call of ``stage``. An error that ends it is the error of each shard that is left."""
    left = {step.key: step for step in steps}
    try:
        for key, outcome in take_together(stage, [*left], settings):
            shown = ShownOutcome(outcome, then(outcome)) if isinstance(outcome, StageOutcome) else outcome
            yield left.pop(key), shown
    except Exception as error:  # any error that ends the work of all, of the model or the device
        if not left:
            raise
        # every shard gets the message; only the first keeps the traceback of a defect
        first, *others = left.values()
        yield first, error
        yield from ((step, ShardError(describe(error))) for step in others)


@dataclass(frozen=True)
class _ClusterWork(Generic[Shown]):
    """The work of one stage in a Ray worker. It yields None about once a second while no shard is done."""

    stage: Stage
    settings: Settings
    then: Callable[[StageOutcome], Shown]

    def __call__(self, keys: Sequence[str]) -> Iterator[tuple[str, ShownOutcome[Shown] | Exception] | None]:
        take = self._in_time if self.stage.together else partial(_one_by_one, [self.stage], jobs=1)
        steps = [_Step(key, 0) for key in keys]
        for found in _tried(steps, partial(take, settings=self.settings, then=self.then), self.settings):
            yield found and (found[0].key, found[1])

    def _in_time(
        self, steps: Sequence[_Step], *, settings: Settings, then: Callable[[StageOutcome], Shown]
    ) -> Iterator[_Found[Shown] | None]:
        """Take shards together on a thread. One that takes too long fails, and another call takes those after it."""
        left, limit_s = list(steps), settings.run.max_shard_seconds
        while left:
            results = _together(self.stage, left, settings=settings, then=then)

            def take(_: _Step, results: Generator[_Found[Shown], None, None] = results) -> _Found[Shown]:
                return next(results)

            def named(_: _Step, left: Sequence[_Step] = left) -> tuple[str, str]:
                return left[0].key, self.stage.name  # shards are processed in order

            for one in on_threads(take, list(left), named=named, threads=1, limit_s=limit_s):
                if one is None:
                    yield None
                elif isinstance(one[1], ShardTimeout):
                    yield left.pop(0), one[1]
                    break
                elif isinstance(one[1], Exception):
                    raise one[1]
                else:
                    left.remove(one[1][0])
                    yield one[1]


def needs_gpu(stage: Stage, clip: ClipSettings) -> bool:
    """Return whether a Ray task of ``stage`` takes a GPU of its node, and else a CPU.

    A task with a GPU takes no CPU, so that it does not wait for one behind the tasks of other stages.
    """
    return stage.together is not None and clip.device != "cpu"


def _pause(attempt: int) -> float:
    """Return seconds to wait after an attempt, numbered from 1: random, and longer on average each time."""
    return random.uniform(0, min(_PAUSE_SECONDS, 2 ** (attempt - 1)))
