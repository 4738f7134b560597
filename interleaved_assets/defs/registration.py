"""Registering raw shards with Dagster: a partition for each, and an observation with its content version."""

from collections.abc import Sequence

import dagster as dg

from interleaved_assets.defs.metadata import DATA_VERSION
from interleaved_assets.pipeline.raw.listing import RawSource
from interleaved_assets.pipeline.record import RAW_SHARDS


def observation(key: str, source: RawSource) -> dg.AssetObservation:
    """An observation of the raw shard ``key`` with its content version."""
    return dg.AssetObservation(
        RAW_SHARDS,
        partition=key,
        tags={DATA_VERSION: source.version},
        metadata={
            "dagster/uri": source.uri,
            "source": dg.MetadataValue.path(source.uri),
            "source_bytes": source.size,
            "source_version": source.version,
        },
    )


def register(
    instance: dg.DagsterInstance, partitions_name: str, keys: Sequence[str], sources: Sequence[RawSource]
) -> None:
    """Add the partitions and record the observations outside of a run."""
    instance.add_dynamic_partitions(partitions_name, list(keys))
    for key, source in zip(keys, sources, strict=True):
        instance.report_runless_asset_event(observation(key, source))
