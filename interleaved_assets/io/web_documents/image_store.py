"""The images of a store by their URL or SHA-256, as img2dataset writes them: in tars, or in the Parquet files."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.parquet.cells import cell_part, is_bytes
from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.storage import exists, find_files, folders_of
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import IncompleteShard, ShardError, StorageError
from interleaved_assets.model.source_ref import build_source_ref

logger = logging.getLogger(__name__)

_NAMES: Final = ("url", "sha256")
"""Columns of what documents may name an image by."""
_KEY: Final = "key"
_STATUS: Final = "status"
_HASH: Final = "sha256:"
_STEP_BYTES: Final = 2**26


def find_images(store: str, urls: Collection[str], options: ReadOptions) -> dict[str, str]:
    """Return the locator of each of ``urls`` that the store has an image for; of several copies, the first.

    Only the columns with names and keys of the Parquet files are read, and the headers of the tars that have images.

    Args:
        store: folder or URL with ``<name>.parquet``, in any depth, and beside it ``<name>.tar`` with the images, unless
            a column of the Parquet file has their bytes.
        urls: the URLs that documents name, or the SHA-256 of images in hex, with ``sha256:`` before it or without.
        options: the options of the storage, and the limits of a tar.

    Raises:
        StorageError: the folder has no Parquet file, or a tar that a Parquet file belongs to is missing.
        ShardError: a Parquet file has not the columns of img2dataset, or is damaged.
        IncompleteShard: a tar that is cut or damaged lacks a wanted image, and ``accept_incomplete`` is False.
    """
    storage_options = options.storage_options
    by_name: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        by_name[url.removeprefix(_HASH)].append(url)
    wanted = pa.array(sorted(by_name), pa.string())
    found: dict[str, str] = {}
    if not len(wanted):
        return found
    for file in find_files(store, (".parquet",), storage_options):
        for name, locator in _images_of(file.uri, wanted, found.keys(), options):
            for url in by_name[name]:
                found.setdefault(url, locator)
    return found


def store_shortfall(store: str | None, urls: Collection[str], options: ReadOptions) -> str | None:
    """Return which tar of the store is cut or damaged and lacks images of ``urls``; None if there is none."""
    try:
        if store is not None:
            find_images(store, urls, options._replace(accept_incomplete=False))
    except IncompleteShard as error:
        return str(error)
    return None


def with_images(table: pa.Table, uri: str, options: ReadOptions, store: str | None) -> Iterator[pa.Table]:
    """Yield rows of the file at ``uri`` with the bytes of images from the store, as far as ``options`` want bytes."""
    if not options.materialize or store is None:
        return iter([table])
    roots = folders_of([uri]) if options.allowed_roots is None else options.allowed_roots
    return options._replace(allowed_roots=[*roots, store]).filled(table, uri)


def _images_of(uri: str, wanted: pa.Array, known: Collection[str], options: ReadOptions) -> Iterator[tuple[str, str]]:
    """Yield name and locator of each wanted image that one Parquet file of the store names."""
    with open_parquet(uri, options.storage_options) as source:
        schema = source.schema
        names = [name for name in _NAMES if name in schema.names]
        content = next((one.name for one in schema if f".{one.name}" in IMAGE_EXTENSIONS and is_bytes(one.type)), None)
        if not names or (content is None and _KEY not in schema.names):
            lacking = [name for name in (_NAMES[0], _KEY) if name not in schema.names]
            raise ShardError(
                f"{uri} is not a list of images as img2dataset writes it: it lacks the columns {', '.join(lacking)}. "
                "Take it out of reading.urls.image_store."
            )
        if content is None and not _is_text(schema.field(_KEY).type):
            raise ShardError(
                f"{uri} has keys of the type {schema.field(_KEY).type}, which name no member of a tar: they are text, "
                "with leading zeros. Fetch it again, or take it out of reading.urls.image_store."
            )
        keys: dict[str, list[str]] = defaultdict(list)
        downloaded: set[str] = set()
        first = 0
        for table in source.rows({*names, *([] if content else [_KEY]), _STATUS}, _STEP_BYTES):
            has_status = _STATUS in table.column_names
            for name in names:
                column = table[name].cast(pa.string())
                here = pc.indices_nonzero(pc.fill_null(pc.is_in(column, wanted), False)).to_pylist()
                for row, value in zip(here, column.take(pa.array(here, pa.int64())).to_pylist(), strict=True):
                    if value in known:
                        continue
                    is_downloaded = not has_status or table[_STATUS][row].as_py() == "success"
                    if content is None:
                        key = table[_KEY][row].as_py()
                        keys[key].append(value)
                        if is_downloaded:
                            downloaded.add(key)
                    elif is_downloaded:
                        yield value, build_source_ref(uri, part=cell_part(content, first + row))
            first += table.num_rows
    if keys:
        yield from _members_of(f"{uri.removesuffix('.parquet')}.tar", uri, keys, downloaded, options)


def _members_of(
    tar: str, uri: str, keys: Mapping[str, Sequence[str]], downloaded: Collection[str], options: ReadOptions
) -> Iterator[tuple[str, str]]:
    """Yield name and locator of each image of a tar; ``keys`` has the names of an image by its key."""
    if not exists(tar, options.storage_options):
        raise StorageError(
            f"{tar} is missing, and {uri} in reading.urls.image_store names images in it: fetch the tar again, or take "
            "the Parquet file out of the store"
        )
    lacking = {*downloaded}
    with open_tar(tar, options.storage_options, by_ranges=True, limits=options.limits) as source:
        for member in source.index.members:
            key, _, extension = member.name.rpartition("/")[2].partition(".")
            if key in keys and f".{extension.lower()}" in IMAGE_EXTENSIONS:
                lacking.discard(key)
                locator = build_source_ref(tar, member.name, member.offset, member.size)
                yield from ((name, locator) for name in keys[key])
        shortfall = source.index.shortfall
    if lacking and shortfall is not None:
        what = f"{tar} in reading.urls.image_store: {shortfall}; wanted images that it lacks: {len(lacking)}"
        if not options.accept_incomplete:
            raise IncompleteShard(
                f"{what}. Fetch the tar again, or set publish.accept_incomplete to go without these images."
            )
        logger.warning("%s", what)


def _is_text(dtype: pa.DataType) -> bool:
    if pa.types.is_dictionary(dtype):
        return _is_text(dtype.value_type)
    return pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
