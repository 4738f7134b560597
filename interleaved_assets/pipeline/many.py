"""Many shards through the stages, each on its own: a failed shard does not stop the others."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeVar

import tenacity

from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ShardError, StorageUnavailable, describe
from interleaved_assets.pipeline.execute import take_through, take_together
from interleaved_assets.pipeline.failures import FailureLog
from interleaved_assets.pipeline.pools.threads import on_threads
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stored_records import NOT_LISTED, ListedRecords
from interleaved_assets.settings import Settings

_PAUSE_SECONDS: Final = 30.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class ShardResult(NamedTuple):
    key: str
    stage: str
    result: StageOutcome | Exception
    """The outcome, or the error with which the shard failed; later stages are not tried then."""


def run_shards(keys: Sequence[str], settings: Settings, *, threads: int | None = None) -> Iterator[ShardResult]:
    """Take shards through all stages, without an orchestrator: the same outputs, records and failures.

    ``run.shards_per_run`` shards at a time go through all stages, so that the first final tars come early. Of them
    ``threads`` are worked on at once, by default ``run.parallel_shards``, and all together on a device.
    """
    stages = stage_dag(settings).values()
    for start in range(0, len(keys), settings.run.shards_per_run):
        left = list(keys[start : start + settings.run.shards_per_run])
        for stage in stages:
            failed = set()
            failures = FailureLog(stage.name, settings.storage)
            for key, result in take_many(stage, left, settings, threads=threads):
                if isinstance(result, Exception):
                    failed.add(key)
                    failures.failed(key, result)
                else:
                    failures.succeeded(key)
                yield ShardResult(key, stage.name, result)
            left = [key for key in left if key not in failed]


def take_many(
    stage: Stage, keys: Sequence[str], settings: Settings, *, threads: int | None = None
) -> Iterator[tuple[str, StageOutcome | Exception]]:
    """Each shard with its outcome at ``stage``, or its error, as they complete.

    While the storage does not answer, a shard is tried ``run.storage_tries`` times. A shard that takes longer than
    ``run.max_shard_seconds`` fails, except of a stage that takes its shards together.
    """
    if stage.together is not None:
        yield from take_together_patiently(stage, keys, settings)
        return
    arrivals = on_threads(
        lambda key: take_patiently(stage, key, settings),
        keys,
        stage.name,
        threads=threads or settings.run.parallel_shards,
        limit_s=settings.run.max_shard_seconds,
    )
    for arrival in filter(None, arrivals):
        if isinstance(arrival.result, BaseException) and not isinstance(arrival.result, Exception):
            raise arrival.result
        yield arrival.key, arrival.result


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
