"""Images that rows of a stage name in their raw shard, read from that raw shard and from no other."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.rows.fetch import Access, parts_of, ranges_of
from interleaved_assets.io.rows.fill import fill_referenced
from interleaved_assets.io.storage.limits import LIMITS
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.raw.bundles import raw_format
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard, raw_content_version
from interleaved_assets.settings import StorageSettings

_PART_BYTES: Final = 16 * 2**20
"""Most bytes of images read at once: memory of this size is used again, and larger parts cost page faults each time."""


def with_raw_images(
    tables: Iterable[pa.Table],
    key: str,
    source: RawSource | None,
    storage: StorageSettings,
    max_batch_bytes: int,
    *,
    few: bool = False,
) -> Iterator[pa.Table]:
    """Yield ``tables`` with the bytes of their images, in tables of whole samples.

    A table has at most ``max_batch_bytes``, and at most 16 MiB.

    The raw shard is compared with ``source`` before the first and after the last table. A raw shard that was moved is
    found by its key. If ``few`` of its images are read, it is not fetched as a whole from a bucket.

    Raises:
        StorageError: the raw shard is gone or unreadable.
        ShardError: its content is not that of ``source``, or changed while it was read.
    """
    raw = find_raw_shard(key, storage, source)
    if source is None or raw_content_version(raw, storage, source) != source.version:
        raise ShardError(
            f"shard {key}: {raw.uri} is not the raw shard that normalized was made from: it was replaced, and the "
            "rows of normalized name images in it. Materialize normalized again"
        )
    limit = min(max_batch_bytes, _PART_BYTES)
    if (fetch := raw_format(raw.uri, storage).fetch) is not None:
        # that an image is within the limits was checked when its row was made
        access = Access(storage.options, limits=LIMITS._replace(max_member_bytes=sys.maxsize - 1))
        yield from fill_referenced(tables, raw.uri, parts_of(raw.uri, fetch, access), limit)
    else:
        with open_tar(raw.uri, storage.options, by_ranges=few) as tar:
            yield from fill_referenced(tables, raw.uri, ranges_of(tar), limit)
    now = find_raw_shard(key, storage, source)
    if now.stamp != raw.stamp:
        raise ShardError(f"shard {key}: {raw.uri} changed while its images were read; materialize it again")
