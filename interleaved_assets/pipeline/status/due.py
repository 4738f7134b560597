"""The shards that need a run, and the reason: from the records, and from the orchestrator's knowledge of past runs."""

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.raw.listing import RawShard
from interleaved_assets.pipeline.stages.dag import StageDag
from interleaved_assets.pipeline.status.dataset_status import status_of_raws
from interleaved_assets.pipeline.status.status import COMPLETE, State, Status
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)


class KnownRuns(NamedTuple):
    """The orchestrator's knowledge of past and present runs."""

    made: Mapping[str, AbstractSet[str]]
    """By stage, the shards with a materialization."""
    failed: Mapping[str, AbstractSet[str]]
    """By stage, the shards whose last run failed, or was terminated before it reported them, as far as known."""
    busy: AbstractSet[str]
    """Shards that a run or backfill in progress still has to process, at any stage."""


class Due(NamedTuple):
    """The shards that need a run, and those that cannot be judged."""

    shards: dict[str, Status]
    """Shards that need a run, with their status: the first stage that is not current, and why. Later stages are made
    too."""
    current: set[str]
    refused: set[str]
    """Shards whose records the storage refuses to read: neither due nor current."""


def due_shards(
    raws: Iterable[RawShard],
    settings: Settings,
    versions: Mapping[str, str],
    progress: KnownRuns,
    *,
    at_most: int | None = None,
    until: float = math.inf,
    all_shards: bool = False,
) -> Due:
    """Find the shards of ``raws`` that need a run, and why. Busy shards are left out.

    A shard with current records is also due if the orchestrator has no materialization of it (a run was killed between
    record and event), or if its last run failed or was terminated (another run had completed the shard before).

    Args:
        at_most: number of due shards after which the rest of ``raws`` is left out.
        until: value of ``time.monotonic()`` after which the rest of ``raws`` is left out.
        all_shards: whether ``raws`` are all or most of the data set, as for :func:`.status_of_raws`.
    """
    due = Due({}, set(), set())
    free = (raw for raw in raws if raw.key not in progress.busy)
    for key, status, _, error in status_of_raws(free, settings, versions, all_shards=all_shards).shards():
        if isinstance(error, StorageError):
            logger.warning("shard %s is left out: %s", key, error)
            due.refused.add(key)
            continue
        if status == COMPLETE:
            status = _status_in_progress(key, progress)
        if status == COMPLETE:
            due.current.add(key)
        else:
            due.shards[key] = status
        if (at_most is not None and len(due.shards) >= at_most) or time.monotonic() > until:
            break
    return due


def stages_due(statuses: Collection[Status], stages: StageDag) -> list[str]:
    """Return the stages that make shards with these statuses current: all from the first that any of them lacks.

    The later stages include some that do not read it: they may be not current too, which a status does not say. A shard
    with an unreadable record goes through all stages.
    """
    order = list(stages)
    places = [order.index(status.stage) for status in statuses if status.stage]
    places += [0 for status in statuses if status.state is State.UNREADABLE]
    return order[min(places) :] if places else []


def _status_in_progress(key: str, progress: KnownRuns) -> Status:
    """Return the status of a shard with current records, from the orchestrator's knowledge of it."""
    for stage, keys in progress.failed.items():
        if key in keys:
            text = f"{stage} failed: its records are current, and its last run failed or was terminated"
            return Status(State.FAILED, text, stage)
    for stage, keys in progress.made.items():
        if key not in keys:
            return Status(State.MISSING, f"{stage} is recorded, and has no materialization", stage)
    return COMPLETE
