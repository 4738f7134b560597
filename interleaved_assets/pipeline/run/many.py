"""Many shards through the stages, each on its own: a failed shard does not stop the others."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from interleaved_assets.pipeline.run.one import take_through, take_together
from interleaved_assets.pipeline.run.processes import OnProcesses
from interleaved_assets.pipeline.run.ray import on_cluster
from interleaved_assets.pipeline.run.shard_map import OnThreads, Task, each, each_result, in_caller
from interleaved_assets.pipeline.run.stage import ShardResult, Stage, StageOutcome
from interleaved_assets.pipeline.run.throughput import StepProgress
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.settings import PluginSettings, Settings

logger = logging.getLogger(__name__)

ShardOutcome = ShardResult[StageOutcome]


def run_shards(
    keys: Sequence[str],
    stages: Iterable[Stage],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], object],
    jobs: int | None = None,
) -> Iterator[ShardOutcome]:
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
            for one in take_many(group, left, settings, then=then, jobs=jobs):
                if isinstance(one.result, Exception):
                    failed.add(one.key)
                yield one
            left = [key for key in left if key not in failed]


def take_many(
    stages: Sequence[Stage],
    keys: Sequence[str],
    settings: Settings,
    *,
    then: Callable[[StageOutcome], object],
    jobs: int | None = None,
    cluster: bool = False,
    log: Callable[[str], object] = logger.info,
) -> Iterator[ShardOutcome]:
    """Take shards through ``stages``, and yield each with its outcome or its error at each stage as it completes.

    Several shards are processed at once in worker processes of this machine, and a shard does not wait for others
    between two stages. A shard that ends its worker fails. While the storage does not answer, it is tried
    ``run.storage_tries`` times. A shard that takes longer than ``run.max_shard_seconds`` fails, except at a stage that
    takes its shards together in this process.

    Args:
        stages: one stage if its shards are taken together, or on a cluster.
        then: called with each outcome, in the process that made the shard; its result is ``shown`` of the outcome. It
            may not raise, and cloudpickle must be able to pickle it and its result.
        jobs: shards at a time, by default ``run.parallel_shards``. One is processed in this process.
        cluster: whether the shards are tasks of the Ray cluster of this machine.
        log: called every 30 seconds with a line that says how many shards are done, at what speed, and how many are
            left.
    """
    by_name = {stage.name: stage for stage in stages}
    following = dict(zip(by_name, [*by_name][1:], strict=False))
    work = partial(_take, by_name, settings, then)
    first, limit_s, tries = stages[0], settings.run.max_shard_seconds, settings.run.storage_tries
    jobs = min(jobs or settings.run.shards_at_once, max(1, len(keys)))

    def after(one: ShardOutcome) -> list[Task]:
        goes_on = isinstance(one.result, StageOutcome) and one.stage in following
        return [Task((one.key,), following[one.stage])] if goes_on else []

    if cluster:
        together, gpu = first.together is not None, needs_gpu(first, settings.clip)
        found = on_cluster(work, keys, first.name, settings.run, together=together, gpu=gpu)
    elif first.together:
        found = in_caller(work, Task(tuple(keys), first.name), tries=tries)
    else:
        tasks = [Task((key,), first.name) for key in keys]
        place = OnThreads(work, 1) if jobs == 1 else OnProcesses(work, jobs)
        found = each_result(place, tasks, limit_s=limit_s, tries=tries, after=after)
    at_once = jobs if len(stages) > 1 else None
    progress = {name: StepProgress(name, len(keys), settings.storage, log, at_once) for name in by_name}
    for one in found:
        for stage in progress.values():
            stage.tick()
        if one is not None:
            progress[one.stage].add(one)
            yield one
    for stage in progress.values():
        stage.end()


def _take(
    stages: Mapping[str, Stage], settings: Settings, then: Callable[[StageOutcome], object], task: Task
) -> Iterator[tuple[str, StageOutcome | Exception]]:
    """Do the work of :func:`take_many` for one task."""
    PluginSettings.model_validate(settings.plugins.model_dump())  # imports them, which another process has not
    task.pause()
    stage = stages[task.stage]
    if stage.together:
        found = take_together(stage, task.keys, settings)
    else:
        found = each(lambda key: take_through(stage, key, settings), task)
    for key, outcome in found:
        yield key, outcome if isinstance(outcome, Exception) else replace(outcome, shown=then(outcome))


def needs_gpu(stage: Stage, clip: ClipSettings) -> bool:
    """Return whether a Ray task of ``stage`` takes a GPU of its node, and else a CPU.

    A task with a GPU takes no CPU, so that it does not wait for one behind the tasks of other stages.
    """
    return stage.together is not None and clip.device != "cpu"
