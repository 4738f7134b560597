"""The images of a store by their URL: the tars that img2dataset writes, each with a Parquet file of URLs and keys."""

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.storage import StorageOptions, exists, find_files, folders_of
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.model.source_ref import build_source_ref

_COLUMNS = ("url", "key")
_STEP_BYTES = 2**26


def find_images(store: str, urls: Collection[str], options: ReadOptions) -> dict[str, str]:
    """Return the locator of each of ``urls`` that the store has an image for; of several copies, the first.

    Only the columns ``url`` and ``key`` of the Parquet files are read, and the headers of the tars that have images.

    Args:
        store: folder or URL with ``<name>.tar`` and ``<name>.parquet``, in any depth.
        urls: the URLs that documents name.
        options: the options of the storage, and the limits of a tar.

    Raises:
        StorageError: the folder has no Parquet file, or a tar that a Parquet file belongs to is missing.
        ShardError: a Parquet file has not the columns of img2dataset, or is damaged.
    """
    storage_options = options.storage_options
    wanted = pa.array(sorted(urls), pa.string())
    found: dict[str, str] = {}
    if not len(wanted):
        return found
    for file in find_files(store, (".parquet",), storage_options):
        keys = {key: url for url, key in _stored(file.uri, wanted, storage_options) if url not in found}
        if not keys:
            continue
        tar = f"{file.uri.removesuffix('.parquet')}.tar"
        if not exists(tar, storage_options):
            raise StorageError(
                f"{tar} is missing, and {file.uri} in reading.urls.image_store names images in it: fetch the tar "
                "again, or take the Parquet file out of the store"
            )
        with open_tar(tar, storage_options, by_ranges=True, limits=options.limits) as source:
            for member in source.index.members:
                key, _, extension = member.name.rpartition("/")[2].partition(".")
                if key in keys and f".{extension.lower()}" in IMAGE_EXTENSIONS:
                    found.setdefault(keys[key], build_source_ref(tar, member.name, member.offset, member.size))
    return found


def with_images(table: pa.Table, uri: str, options: ReadOptions, store: str | None) -> Iterator[pa.Table]:
    """Yield rows of the file at ``uri`` with the bytes of images from the store, as far as ``options`` want bytes."""
    if not options.materialize or store is None:
        return iter([table])
    roots = folders_of([uri]) if options.allowed_roots is None else options.allowed_roots
    return options._replace(allowed_roots=[*roots, store]).filled(table, uri)


def _stored(uri: str, wanted: pa.Array, storage_options: StorageOptions) -> Iterator[tuple[str, str]]:
    """Yield URL and key of each of the ``wanted`` URLs in the Parquet file of one tar."""
    with open_parquet(uri, storage_options) as source:
        if missing := [name for name in _COLUMNS if name not in source.schema.names]:
            raise ShardError(
                f"{uri} is not a list of images as img2dataset writes it: it lacks the columns {', '.join(missing)}. "
                "Take it out of reading.urls.image_store."
            )
        for table in source.rows(_COLUMNS, _STEP_BYTES):
            urls, keys = (table[name].cast(pa.string()) for name in _COLUMNS)
            here = pc.is_in(urls, wanted)
            yield from zip(urls.filter(here).to_pylist(), keys.filter(here).to_pylist(), strict=True)
