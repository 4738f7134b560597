"""Which shards are current, and why the others are not: recorded versions against the present ones."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from interleaved_assets.pipeline.chain import chain
from interleaved_assets.pipeline.raw import RawShard
from interleaved_assets.pipeline.record import RAW_SHARDS, Record, ShardPaths, read_record
from interleaved_assets.settings import Settings

CURRENT: Final = "complete"
# Records are small files: what their reading costs is waiting for the storage.
_READERS: Final = 32


def stage_records(key: str, settings: Settings) -> dict[str, Record]:
    """The records of one shard by stage, in the order of the chain; stages that have none are left out."""
    paths = ShardPaths(output_root=settings.storage.output_root, key=key)
    found = ((name, read_record(paths.record(name), settings.storage.options)) for name in chain(settings))
    return {name: record for name, record in found if record is not None}


def shard_status(records: Mapping[str, Record], settings: Settings, raw: RawShard | None = None) -> str:
    """``complete``, or what comes first of: a stage that is missing, or was made under other settings or from other
    inputs.

    Args:
        records: of the shard's stages.
        settings: in force now.
        raw: the shard as it lies there now; without it, the raw shard is taken as unchanged. A new stamp counts as a
            change, whether or not the content is new: telling that would mean reading it.
    """
    for name, stage in chain(settings).items():
        record = records.get(name)
        if record is None:
            return f"no {name}"
        if record.code_version != stage.code_version(settings):
            return f"{name} stale: settings or code changed"
        if (
            raw is not None
            and RAW_SHARDS in stage.inputs
            and (record.source is None or record.source.stamp != raw.stamp)
        ):
            return f"{name} stale: {RAW_SHARDS} changed"
        for upstream in stage.inputs:
            if upstream in records and record.inputs.get(upstream) != records[upstream].data_version:
                return f"{name} stale: {upstream} changed"
    return CURRENT


def shard_statuses(raws: Iterable[RawShard], settings: Settings) -> Iterator[tuple[str, str]]:
    """Key and :func:`shard_status` of each raw shard, in their order."""
    raws = list(raws)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="records") as pool:
        records = pool.map(lambda raw: stage_records(raw.key, settings), raws)
        for raw, found in zip(raws, records, strict=True):
            yield raw.key, shard_status(found, settings, raw)
