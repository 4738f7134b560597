"""Queries of Dagster's event log for the latest events of shards, made for a hundred thousand shards."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

import dagster as dg

from interleaved_assets.defs.private_api.instance import latest_event_ids
from interleaved_assets.pipeline.record import RAW_SHARDS

_NAMED: Final = 10_000
"""Keys that one query names; above, all shards are queried. SQLite takes 32,766 variables in a statement."""
_FETCHED: Final = 1_000
"""Events that are loaded by one query; Dagster refuses more than 10,000."""
_CLOCKS_DIFFER_S: Final = 3600.0
"""How far an event of a run may seem to lie before its start: its step's machine has another clock, or one was set."""

_Item = TypeVar("_Item")


def event_type(asset: str) -> dg.DagsterEventType:
    """The type of the events with an asset's version: raw shards are observed, other assets materialized."""
    if asset == RAW_SHARDS:
        return dg.DagsterEventType.ASSET_OBSERVATION
    return dg.DagsterEventType.ASSET_MATERIALIZATION


def latest_ids(
    instance: dg.DagsterInstance, asset: str, kind: dg.DagsterEventType, keys: Collection[str]
) -> dict[str, int]:
    """The id of the last event of each of ``keys`` that has one."""
    if not keys:
        return {}  # Dagster takes an empty set for all keys
    wanted = set(keys)
    found = latest_event_ids(instance, dg.AssetKey(asset), kind, wanted if len(wanted) <= _NAMED else None)
    return {key: event for key, event in found.items() if key in wanted}


def observations(
    instance: dg.DagsterInstance, asset: str, *, ids: Sequence[int] = (), keys: Sequence[str] = ()
) -> Iterator[dg.EventLogRecord]:
    """The observations of ``asset`` with these ids, and all those of these shards; of each shard the latest first."""
    key = dg.AssetKey(asset)
    for some in some_at_a_time(ids, _FETCHED):
        yield from instance.fetch_observations(dg.AssetRecordsFilter(key, storage_ids=some), limit=len(some)).records
    for named in some_at_a_time(keys, _NAMED):
        yield from _pages(instance.fetch_observations, dg.AssetRecordsFilter(key, asset_partitions=named))


def materialized_in_run(instance: dg.DagsterInstance, asset: str, keys: Sequence[str], run: dg.DagsterRun) -> set[str]:
    """Those of ``keys`` that ``run`` has materialized at ``asset``."""
    record = instance.get_run_record_by_id(run.run_id)
    # events have the times of the machines that logged them, and their clocks may differ
    since = record.start_time - _CLOCKS_DIFFER_S if record and record.start_time else None
    return {
        str(event.partition_key)
        for named in some_at_a_time(keys, _NAMED)
        for event in _pages(
            instance.fetch_materializations,
            dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=named, after_timestamp=since),
        )
        if event.run_id == run.run_id
    }


def _pages(fetch: Callable[..., dg.EventRecordsResult], selected: dg.AssetRecordsFilter) -> Iterator[dg.EventLogRecord]:
    cursor, more = None, True
    while more:
        page = fetch(selected, limit=_FETCHED, cursor=cursor)
        yield from page.records
        cursor, more = page.cursor, page.has_more


def some_at_a_time(items: Sequence[_Item], at_most: int) -> Iterator[Sequence[_Item]]:
    """``items`` in order, ``at_most`` at a time."""
    for start in range(0, len(items), at_most):
        yield items[start : start + at_most]
