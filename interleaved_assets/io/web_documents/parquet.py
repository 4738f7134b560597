"""Reader of Parquet with a document a row: lists of texts and image URLs, as OBELICS and MINT-1T publish them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.source import ParquetSource, open_parquet
from interleaved_assets.io.rows.blocks import IMAGE_URL, BlockDocument, block_tables
from interleaved_assets.io.storage import locator_path
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.web_documents.blocks import UrlLists, blocks_of, sample_id_of
from interleaved_assets.io.web_documents.image_store import find_images, store_shortfall, with_images
from interleaved_assets.io.web_documents.mmc4 import MMC4_LISTS
from interleaved_assets.io.web_documents.settings import UrlSettings
from interleaved_assets.model.columns import REQUIRED_COLUMNS, RESERVED_COLUMNS
from interleaved_assets.model.errors import ShardError, row_error
from interleaved_assets.model.source_ref import build_source_ref

_STEP_BYTES: Final = 2**26
_ID: Final = "sample_id"
_URL_COLUMNS: Final = ("url", "general_metadata")


def read_parquet(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the tables of a Parquet file, of rows of the row model or of documents with lists; see the readers."""
    if has_url_lists(uri, options):
        yield from read_url_parquet(uri, options)
        return
    read_kwargs = {"storage_options": options.storage_options, "columns": options.columns}
    for batch in InterleavedParquetReader(uri, max_batch_bytes=options.max_batch_bytes, read_kwargs=read_kwargs):
        table = batch.to_pyarrow()
        yield from options.filled(table, uri) if options.materialize else [table]


def parquet_shortfall(uri: str, options: ReadOptions) -> str | None:
    """Return which tar of the store is cut or damaged and lacks images of the file's documents, None if none is."""
    store = (options.sections.get("urls") or UrlSettings()).image_store
    if store is None or not has_url_lists(uri, options):
        return None
    with open_parquet(uri, options.storage_options) as source:
        return store_shortfall(store, _urls(source, options.layout.images_field), options)


def has_url_lists(uri: str, options: ReadOptions) -> bool:
    """Return whether a Parquet file has the two lists of ``options.layout``, and not the columns of the row model.

    Raises:
        ShardError: it has the lists of MMC4 instead.
    """
    with open_parquet(uri, options.storage_options) as source:
        names = set(source.schema.names)
        lists, is_of_rows = {options.layout.texts_field, options.layout.images_field}, names >= {*REQUIRED_COLUMNS}
        if names >= MMC4_LISTS and not (is_of_rows or names >= lists):
            raise ShardError(f"{uri}: MMC4's {' and '.join(sorted(MMC4_LISTS))} are read from JSONL only: convert it")
        return names >= lists and not is_of_rows


def read_url_parquet(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of whole documents from a Parquet file with lists; all have the same schema.

    The ``sample_id`` is the column that the layout names, else ``sample_id``, else ``url``, also in
    ``general_metadata``, else the number of the row. All other columns are passthrough columns with their types.

    Raises:
        StorageError: the file or the store is missing or unreadable.
        ShardError: the file is damaged, or its lists are none; the store is none of img2dataset's.
    """
    store, layout = (options.sections.get("urls") or UrlSettings()).image_store, options.layout
    with open_parquet(uri, options.storage_options) as source:
        _check_lists(source, options)
        locators = {} if store is None else find_images(store, _urls(source, layout.images_field), options)
        kept = _passthrough(source, options)
        spread = _spread_columns(source, options, kept)
        columns = [field.with_type(field.type.value_type) if name in spread else field for name, field in kept.items()]
        types = pa.schema([(IMAGE_URL, pa.string()), *columns])
        documents = _documents(source, options, kept, spread, locators, has_store=store is not None)
        for table in block_tables(documents, types, max_batch_bytes=options.max_batch_bytes, notes=options.notes):
            yield from with_images(table, uri, options, store)


def _check_lists(source: ParquetSource, options: ReadOptions) -> None:
    for name in (options.layout.texts_field, options.layout.images_field):
        dtype = source.schema.field(name).type
        if not _is_list(dtype) and not pa.types.is_null(dtype):
            raise ShardError(f"{source.uri}: the column {name} is {dtype}, and has to be a list of texts or URLs")


def _urls(source: ParquetSource, column: str) -> set[str]:
    urls = set[str]()
    for table in source.rows([column], _STEP_BYTES):
        for images in table[column].to_pylist():
            urls.update(url for url in images or () if isinstance(url, str))
    return urls


def _spread_columns(source: ParquetSource, options: ReadOptions, kept: Mapping[str, pa.Field]) -> dict[str, str]:
    """Return the columns of lists that ``per_text_fields`` and ``per_image_fields`` name, with the list they follow.

    A list that has not one entry for each text or image in some row stays whole in all rows, since a column has one
    type; it is counted as ``uneven_lists``.
    """
    layout = options.layout
    followed = dict.fromkeys(layout.per_text_fields, layout.texts_field)
    followed |= dict.fromkeys(layout.per_image_fields, layout.images_field)
    found = {name: entries for name, entries in followed.items() if name in kept and _is_list(kept[name].type)}
    for name, entries in list(found.items()):
        for table in source.rows([name, entries], _STEP_BYTES):
            pairs = zip(table[name].to_pylist(), table[entries].to_pylist(), strict=True)
            if any(values is not None and len(values) != _entries(followed) for values, followed in pairs):
                del found[name]
                if options.notes is not None:
                    options.notes["uneven_lists"] += 1
                break
    return found


def _entries(values: Sequence[object] | None) -> int:
    return sum(value is not None for value in values or ())


def _is_list(dtype: pa.DataType) -> bool:
    return hasattr(dtype, "value_field")  # as lists of every kind and views of them have it


def _passthrough(source: ParquetSource, options: ReadOptions) -> dict[str, pa.Field]:
    """Return the field of each column that passes through, by its name in the file.

    A name that the row model has for itself gets an underscore at its end, as from tars.
    """
    layout = options.layout
    names = [name for name in source.schema.names if name not in (layout.texts_field, layout.images_field)]
    taken = {*names, IMAGE_URL, *RESERVED_COLUMNS}
    found: dict[str, pa.Field] = {}
    for name in names:
        own = name
        while own == IMAGE_URL or own in RESERVED_COLUMNS or (own != name and own in taken):
            own += "_"
        if layout.fields is None or own in layout.fields:
            found[name] = source.schema.field(name).with_name(own)
    return found


def _documents(
    source: ParquetSource,
    options: ReadOptions,
    kept: Mapping[str, pa.Field],
    spread: Mapping[str, str],
    locators: Mapping[str, str],
    *,
    has_store: bool,
) -> Iterator[BlockDocument]:
    layout, most = options.layout, options.limits.max_document_bytes
    path = locator_path(source.uri)
    file, locator = path.rpartition("/")[2], build_source_ref(path)
    ids = [name for name in (layout.sample_id_field, _ID) if name is not None]
    columns = {layout.texts_field, layout.images_field, *kept, *ids, *_URL_COLUMNS}
    step = min(options.max_batch_bytes or _STEP_BYTES, _STEP_BYTES)
    number = 0
    for table in source.rows(columns, step):
        for row in table.to_pylist():
            number += 1
            own = next((str(row[name]) for name in ids if row.get(name) not in (None, "")), None)
            lists = UrlLists(
                row[layout.texts_field] or (),
                row[layout.images_field] or (),
                per_text=_of_entries(row, kept, spread, layout.texts_field),
                per_image=_of_entries(row, kept, spread, layout.images_field),
            )
            size = sum(len(text) for text in (*lists.texts, *lists.images) if isinstance(text, str))
            error = None
            if size > most:
                error = row_error("document_too_large", f"{size} characters, over max_document_bytes {most}")
                lists = UrlLists((), ())
            yield BlockDocument(
                own or sample_id_of(row) or f"{file}:{number}",
                blocks_of(lists, locators, has_store=has_store),
                {
                    field.name: row[name]
                    for name, field in kept.items()
                    if name not in spread and (name != _ID or str(row[name]) != own)
                },
                error,
                locator,
            )


def _of_entries(
    row: Mapping[str, Any], kept: Mapping[str, pa.Field], spread: Mapping[str, str], entries: str
) -> dict[str, Any]:
    """Return the lists of a row that have one value for each entry of the list ``entries``, by column."""
    return {kept[name].name: row[name] for name in spread if spread[name] == entries and row[name] is not None}
