"""How a raw shard is reported to Dagster: as an observation with its content version."""

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
