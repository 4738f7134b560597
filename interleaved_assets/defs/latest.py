"""The latest events of shards, asked of Dagster's event log in ways that hold for a hundred thousand of them."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import dagster as dg

from interleaved_assets.defs.metadata import DATA_VERSION
from interleaved_assets.pipeline.record import RAW_SHARDS

_NAMED: Final = 10_000
"""Keys that one question names; above, it is asked of all shards. SQLite takes 32,766 variables in a statement."""
_FETCHED: Final = 1_000
"""Events that are fetched whole in one go; Dagster refuses more than 10,000."""


def event_type(asset: str) -> dg.DagsterEventType:
    """Of the events that tell a version: raw shards are observed, everything else is materialized."""
    if asset == RAW_SHARDS:
        return dg.DagsterEventType.ASSET_OBSERVATION
    return dg.DagsterEventType.ASSET_MATERIALIZATION


def latest_ids(
    instance: dg.DagsterInstance,
    asset: str,
    kind: dg.DagsterEventType,
    keys: Collection[str] | None = None,
    after: int | None = None,
) -> dict[str, int]:
    """The id of the last event of each shard, of ``keys`` or of all, that has one later than ``after``."""
    if keys is None:
        return dict(instance.get_latest_storage_id_by_partition(dg.AssetKey(asset), kind, None, after))
    if not keys:
        return {}  # Dagster takes no keys for all keys
    wanted = set(keys)
    named = wanted if len(wanted) <= _NAMED else None
    found = instance.get_latest_storage_id_by_partition(dg.AssetKey(asset), kind, named, after)
    return {key: event for key, event in found.items() if key in wanted}


def data_versions(
    instance: dg.DagsterInstance, asset: str, keys: Collection[str], until: int | None = None
) -> dict[str, str]:
    """The version that the last event of each of ``keys`` tells, among events up to ``until``.

    A shard is left out where its last event tells none. PostgreSQL shows an event for a moment before its version.
    """
    if not keys:
        return {}
    wanted = set(keys)
    found = instance.event_log_storage.get_latest_tags_by_partition(
        dg.AssetKey(asset),
        event_type(asset),
        [DATA_VERSION],
        sorted(wanted) if len(wanted) <= _NAMED else None,
        before_cursor=None if until is None else until + 1,
    )
    return {key: tags[DATA_VERSION] for key, tags in found.items() if key in wanted}


def observations(instance: dg.DagsterInstance, asset: str, ids: Sequence[int]) -> Iterator[dg.EventLogRecord]:
    """The observations of ``asset`` with these ids."""
    for start in range(0, len(ids), _FETCHED):
        some = ids[start : start + _FETCHED]
        yield from instance.fetch_observations(
            dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), storage_ids=some), limit=len(some)
        ).records
