"""Many shards through the stages, each on its own: a failed shard does not stop the others."""

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, NamedTuple, TypeVar

import tenacity

from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ShardError, StorageError, StorageUnavailable, describe
from interleaved_assets.pipeline.execute import list_compared, take_through, take_together
from interleaved_assets.pipeline.failures import FailureLog
from interleaved_assets.pipeline.pools.arrival import Arrival
from interleaved_assets.pipeline.pools.cluster import Needs, on_cluster
from interleaved_assets.pipeline.pools.threads import on_threads
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stored_records import NOT_LISTED, ListedRecords
from interleaved_assets.pipeline.throughput import ENOUGH, Progress, write_throughput
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 30.0

Item = TypeVar("Item")
Result = TypeVar("Result")
Shown = TypeVar("Shown")


class ShardResult(NamedTuple, Generic[Shown]):
    """A shard at one stage: what was made of it, or the error with which it failed; later stages are not tried then."""

    key: str
    stage: str
    result: "Made[Shown] | Exception"


def run_shards(
    keys: Sequence[str], settings: Settings, *, then: Callable[[StageOutcome], Shown], threads: int | None = None
) -> Iterator[ShardResult[Shown]]:
    """Take shards through all stages, without an orchestrator: the same outputs, records and failures.

    ``run.shards_per_run`` shards at a time go through all stages, so that the first final tars come early. Of them
    ``threads`` are worked on at once, by default ``run.parallel_shards``, and all together on a device.
    """
    stages = stage_dag(settings).values()
    for start in range(0, len(keys), settings.run.shards_per_run):
        left = list(keys[start : start + settings.run.shards_per_run])
        for stage in stages:
            failed = set()
            for arrival in take_many(stage, left, settings, then=then, threads=threads):
                if isinstance(arrival.result, BaseException):
                    failed.add(arrival.key)
                    if not isinstance(arrival.result, Exception):
                        raise arrival.result
                yield ShardResult(arrival.key, stage.name, arrival.result)
            left = [key for key in left if key not in failed]


class Made(NamedTuple, Generic[Shown]):
    """A shard that was taken through a stage, and what ``then`` has returned for it."""

    outcome: StageOutcome
    shown: Shown


def take_many(
    stage: Stage,
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], Shown],
    threads: int | None = None,
    cluster: bool = False,
    log: Callable[[str], object] = logger.info,
) -> Iterator[Arrival[Made[Shown]]]:
    """Take shards through ``stage``, and yield each with its outcome or its error as it completes.

    While the storage does not answer, a shard is tried ``run.storage_tries`` times. A shard that takes longer than
    ``run.max_shard_seconds`` fails, except of a stage that takes its shards together in this process.

    Args:
        then: called with each outcome where the shard was made. It may raise nothing, and for a cluster what it returns
            has to be picklable.
        threads: shards at a time in this process, by default ``run.parallel_shards``.
        cluster: whether the shards are tasks of the Ray cluster of this machine.
        log: called every 30 seconds with a line that says how many shards are done, at what speed, and what is left.
    """
    progress = Progress(stage.name, len(keys), log)
    failures = FailureLog(stage.name, settings.storage)
    for arrival in _arrivals(stage, keys, settings, then, threads or settings.run.parallel_shards, cluster=cluster):
        progress.tick()
        if arrival is None:
            continue
        if isinstance(arrival.result, Made):
            progress.add(arrival.result.outcome, arrival.host, arrival.queue_seconds)
            failures.succeeded(arrival.key)
        else:
            progress.add(None, arrival.host, arrival.queue_seconds)
            failures.failed(arrival.key, arrival.result)
        yield arrival
    whole = progress.end()
    if whole.made >= ENOUGH:
        try:
            write_throughput(whole, settings.storage)
        except StorageError as error:
            log(f"the report lacks how fast {stage.name} went: {error}")  # its shards are made


def _arrivals(
    stage: Stage,
    keys: Sequence[str],
    settings: Settings,
    then: Callable[[StageOutcome], Shown],
    threads: int,
    *,
    cluster: bool,
) -> Iterator[Arrival[Made[Shown]] | None]:
    """Yield the shards as they become ready, and None about once a second in between, for lines of progress."""
    limit_s = settings.run.max_shard_seconds
    if cluster and keys:
        return on_cluster(
            partial(_one_after_another, stage, settings=settings, then=then),
            keys,
            stage.name,
            together=stage.together is not None,
            needs=task_needs(stage, settings.clip),
            limit_s=limit_s,
            plugins=settings.plugins,
        )
    if stage.together:
        return (Arrival(key, result) for key, result in _one_after_another(stage, keys, settings, then))
    listed = list_compared(stage, keys, settings.storage)

    def take(key: str) -> Made[Shown]:
        outcome = take_patiently(stage, key, settings, listed)
        return Made(outcome, then(outcome))

    return on_threads(take, keys, stage.name, threads=threads, limit_s=limit_s)


def task_needs(stage: Stage, clip: ClipSettings) -> Needs:
    """Return what a Ray task takes of a node: one CPU, or one GPU for the stage with the model.

    The task with the GPU takes no CPU, so that it does not wait for one behind the tasks of other stages.
    """
    return Needs(cpus=0, gpus=1) if stage.together and clip.device != "cpu" else Needs(cpus=1, gpus=0)


def _one_after_another(
    stage: Stage, keys: Sequence[str], settings: Settings, then: Callable[[StageOutcome], Shown]
) -> Iterator[tuple[str, Made[Shown] | BaseException]]:
    """Yield each of ``keys`` with its result or its error, taken together where the stage takes them so."""
    if stage.together:
        for key, result in take_together_patiently(stage, keys, settings):
            yield key, Made(result, then(result)) if isinstance(result, StageOutcome) else result
        return
    for key in keys:
        try:
            outcome = take_patiently(stage, key, settings)
            yield key, Made(outcome, then(outcome))
        except Exception as error:  # noqa: BLE001  any error concerns only this shard
            yield key, error


def take_patiently(stage: Stage, key: str, settings: Settings, listed: ListedRecords | None = None) -> StageOutcome:
    """:func:`take_through`, tried ``run.storage_tries`` times while the storage does not answer."""
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StorageUnavailable),
        stop=tenacity.stop_after_attempt(settings.run.storage_tries),
        wait=lambda state: _pause(state.attempt_number),
        reraise=True,
    )
    return tries(take_through, stage, key, settings, listed or NOT_LISTED)


def as_completed(
    work: Callable[[Item, Callable[[], bool]], Result], items: Iterable[Item], *, threads: int
) -> Iterator[tuple[Item, Result | Exception]]:
    """Each of ``items`` with the result of ``work`` or its exception, as they complete, on ``threads`` threads.

    ``work`` also gets a function that returns True once the generator is closed or interrupted, for it to end early.
    What it raises and is no ``Exception`` is raised here.
    """
    ended = threading.Event()
    with Workers(threads, "shards") as workers:
        try:
            done: SimpleQueue[Future[Result]] = SimpleQueue()
            futures = {workers.submit(work, item, ended.is_set): item for item in items}
            for future in futures:
                future.add_done_callback(done.put)
            while futures:
                future = done.get()
                item, error = futures.pop(future), future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield item, future.result() if error is None else error
        finally:
            ended.set()


def take_together_patiently(
    stage: Stage, keys: Sequence[str], settings: Settings
) -> Iterator[tuple[str, StageOutcome | Exception]]:
    """:func:`take_together`, with shards whose storage does not answer tried ``run.storage_tries`` times.

    An error that ends the work of all is the error of each shard that is left.
    """
    for attempt in itertools.count(1):
        left = dict.fromkeys(keys)
        unavailable = []
        try:
            for key, outcome in take_together(stage, keys, settings):
                if isinstance(outcome, StorageUnavailable) and attempt < settings.run.storage_tries:
                    unavailable.append(key)
                else:
                    del left[key]
                    yield key, outcome
        except Exception as error:  # any error that ends the work of all: a model that cannot be loaded, a device
            if not left:
                raise
            # every shard gets the sentence; the traceback of a defect stays with the first
            first, *others = left
            yield first, error
            yield from ((key, ShardError(describe(error))) for key in others)
            return
        if not unavailable:
            return
        keys = unavailable
        time.sleep(_pause(attempt))


def _pause(attempt: int) -> float:
    """Seconds to wait after an attempt, numbered from 1: random, and longer on average each time."""
    return random.uniform(0, min(_PAUSE_SECONDS, 2 ** (attempt - 1)))
