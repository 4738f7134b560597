"""The format of Parquet: rows of the row model, or documents with lists of texts and image URLs."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.web_documents.settings import UrlSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.parquet.writer import ParquetShard
    from interleaved_assets.io.storage.limits import TarLimits
    from interleaved_assets.io.tar.reader import ReadOptions


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.parquet.reader import InterleavedParquetReader  # declaring a format loads no reader
    from interleaved_assets.io.web_documents.parquet import has_url_lists, read_url_parquet

    if has_url_lists(uri, options):
        yield from read_url_parquet(uri, options, options.sections.get("urls") or UrlSettings())
        return
    read_kwargs = {"storage_options": options.storage_options, "columns": options.columns}
    for batch in InterleavedParquetReader(uri, max_batch_bytes=options.max_batch_bytes, read_kwargs=read_kwargs):
        table = batch.to_pyarrow()
        yield from options.filled(table, uri) if options.materialize else [table]


def _write(
    uri: str, schema: "pa.Schema", options: StorageOptions, _: "TarLimits"
) -> "AbstractContextManager[ParquetShard]":
    from interleaved_assets.io.parquet.writer import parquet_shard

    return parquet_shard(uri, schema, storage_options=options)


def _fetch(
    uri: str, parts: Sequence[str], storage_options: StorageOptions, limits: "TarLimits"
) -> Iterator[tuple[str, bytes | str]]:
    from interleaved_assets.io.parquet.cells import fetch_cells

    return fetch_cells(uri, parts, storage_options, limits)


PARQUET: Final = ShardFormat(
    name="parquet",
    endings=(".parquet",),
    read=_read,
    write=_write,
    magic=b"PAR1",
    version=2,
    section="urls",
    settings=UrlSettings,
    paths=("image_store",),
    fetch=_fetch,
)
