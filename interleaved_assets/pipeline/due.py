"""Which shards need a run, and why: the statuses from the records, and what the orchestrator knows of past runs."""

import math
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from interleaved_assets.pipeline.raw.listing import RawShard
from interleaved_assets.pipeline.status import COMPLETE, State, Status, shard_statuses
from interleaved_assets.settings import Settings


class Progress(NamedTuple):
    """What the orchestrator knows of shards: keys by stage."""

    made: Mapping[str, AbstractSet[str]]
    """Shards that it has as materialized at the stage."""
    failed: Mapping[str, AbstractSet[str]]
    """Shards whose last run failed at the stage."""
    busy: AbstractSet[str]
    """Shards, of all stages, that a run or a backfill has yet to take through one."""


class Due(NamedTuple):
    """Which shards need a run, and which do not."""

    shards: dict[str, Status]
    """Shards that need a run: the first stage that is not current, and why. The stages behind it follow."""
    current: set[str]
    refused: set[str]
    """Shards whose records the storage refuses: neither due nor current."""


def due_shards(
    raws: Iterable[RawShard],
    settings: Settings,
    versions: Mapping[str, str],
    progress: Progress,
    *,
    at_most: int | None = None,
    until: float = math.inf,
) -> Due:
    """Which of ``raws`` need which stages, and why. Shards that a run or a backfill is working on are left out.

    A shard whose records are current is due all the same where the orchestrator has no materialization of it (a run was
    killed between record and event), or where its last run failed (another one had made the shard before).

    Args:
        raws: the shards, as they are now.
        settings: in force.
        versions: content versions of those raw shards that were read, by key.
        progress: of the shards, as the orchestrator knows it.
        at_most: number of due shards after which the rest of ``raws`` is left out.
        until: value of ``time.monotonic()`` after which the rest of ``raws`` is left out.
    """
    due = Due({}, set(), set())
    for key, status in shard_statuses((raw for raw in raws if raw.key not in progress.busy), settings, versions):
        if status is None:
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


def _status_in_progress(key: str, progress: Progress) -> Status:
    """The status of a shard whose records are current, as the orchestrator knows it."""
    for stage, keys in progress.failed.items():
        if key in keys:
            return Status(State.FAILED, f"{stage} failed: its records are current, and its last run failed", stage)
    for stage, keys in progress.made.items():
        if key not in keys:
            return Status(State.MISSING, f"{stage} is recorded, and has no materialization", stage)
    return COMPLETE
