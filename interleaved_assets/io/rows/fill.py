"""Filling of image rows with the bytes that their ``source_ref`` names.

:func:`materialize` trusts no locator, and a row that cannot be filled gets an error. :func:`fill_referenced` fills rows
by reference from the raw shard that they were made from. Sources are read once each, also if many rows share them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import are_adjacent, binary_column, binary_views, row_bytes, split_samples
from interleaved_assets.io.rows.fetch import Access, Contents, Source, fetch, is_compressed_tar
from interleaved_assets.io.rows.raw_versions import RawShards, is_by_reference, without_raw_versions
from interleaved_assets.io.rows.resolve import Resolved, RowContent, resolve, source_in, source_of
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.ranges import Content
from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.errors import ShardError, error_code, row_error
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.model.source_ref import SourceRef, parse_source_ref

_GUESSED_BYTES: Final = 2**20

# Errors of an earlier fetch that a new fetch may resolve. All others describe the shard, and stay.
_WORTH_ANOTHER_TRY: Final = frozenset({"unreadable_source", "short_read", "forbidden_path", "member_too_large"})


def materialize(
    table: pa.Table,
    *,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    limits: TarLimits = LIMITS,
) -> pa.Table:
    """Return ``table`` with ``binary_content`` filled in for image rows that have no bytes.

    A part is read by the format of its file, a byte range as such, unless it is empty and a member is named. Else a
    member is looked up in its tar. Else the whole file is the image. With a ``frame_index`` the bytes are a TIFF, and
    that frame is cut out of it, pixels unchanged. If they are an image of another type, that image is frame 0, and the
    row gets its ``content_type``. Bytes that several rows share are fetched once; ranges and whole files take one
    ``cat_ranges`` call per filesystem.

    A row that cannot be filled gets a ``materialize_error`` and null bytes; a row that is filled loses the error of an
    earlier fetch. Rows with any other error are left as they are.

    Rows by reference get no other bytes: the raw shard must have the content that it had when they were made, and each
    image the size that its row states.

    Args:
        table: rows of the row model.
        storage_options: fsspec options for remote paths.
        allowed_roots: folders and URLs that a ``source_ref`` may point below; None and an empty list allow no place.
        limits: limits for the bytes fetched for one row (``max_member_bytes``), for the unpacked size of a compressed
            tar in a temporary file (``max_unpacked_bytes``), and for the bytes that the rows of one sample get together
            (``max_sample_bytes``); bytes that several rows share count for each of them.

    Raises:
        OptionError: a required column is missing or null.
        StorageError: a disk, a server or this process failed; StorageUnavailable if trying again later may succeed.
    """
    check_rows(table, (), "materialize")
    access = Access(storage_options, allowed_roots or (), limits)
    return next(materialize_parts(table, None, access))


def materialize_parts(table: pa.Table, max_batch_bytes: int | None, access: Access) -> Iterator[pa.Table]:
    """Yield the result of :func:`materialize` in parts of whole samples of at most ``max_batch_bytes``.

    A larger sample is a part of its own. Rows may share bytes, and so take far more memory than was fetched: only one
    part is made at a time. There is at least one part.
    """
    table = with_fetch_columns(table)
    chosen = _rows_to_fill(table)
    raws = RawShards(table.schema, access.storage_options)
    table, stated_sizes = _without_sizes(table)
    if not chosen.any():
        yield table
        return
    rows = np.flatnonzero(chosen)
    locators = table["source_ref"].take(pa.array(rows)).to_pylist()
    allowed: dict[str, bool] = {}
    plans = {
        row: source_of(locator, access, allowed, raws) for row, locator in zip(rows.tolist(), locators, strict=True)
    }
    found = resolve(plans, lambda sources: _fetched(sources, access, raws))
    _refuse_other_sizes(found, stated_sizes)
    _refuse_large_samples(found, table["sample_id"].take(pa.array(rows)).to_pylist(), access.limits.max_sample_bytes)
    sizes = row_bytes(table)
    for row, outcome in found.items():
        if isinstance(outcome, RowContent):
            sizes[row] += sum(map(len, outcome.pieces))
    first = 0
    for part in split_samples(table, max_batch_bytes, sizes):
        rows_of_part = range(first, first + part.num_rows)
        outcomes_of_part = {row - first: found[row] for row in rows_of_part if row in found}
        kept_errors = {row - first for row in rows_of_part if row in stated_sizes}
        yield _with_errors(_with_bytes(part, outcomes_of_part), outcomes_of_part, kept_errors)
        first += part.num_rows


def fetched_parts(table: pa.Table, most_bytes: int, access: Access) -> Iterator[pa.Table]:
    """Yield the result of :func:`materialize` in parts of about ``most_bytes``, each fetched when it is asked for.

    The table stays whole if nothing is fetched, or if a sample's rows do not follow each other.
    """
    table = with_fetch_columns(table)
    sizes = bytes_to_fetch(table)
    if not sizes.any() or not are_adjacent(table["sample_id"]):
        yield from materialize_parts(table, None, access)
        return
    # parts in which nothing is fetched get the types of the others
    for name, dtype in (("binary_content", pa.large_binary()), ("materialize_error", pa.string())):
        table = _replaced(table, name, table[name].cast(dtype))
    for part in split_samples(table, most_bytes, sizes):
        yield from materialize_parts(part, most_bytes, access)


def fill_referenced(
    tables: Iterable[pa.Table], uri: str, contents: Contents, max_batch_bytes: int
) -> Iterator[pa.Table]:
    """Yield ``tables`` with the bytes of their images, as if they had been copied, and without :data:`BINARY_SIZE`.

    Images are read in the order of the rows, which is that of the raw shard. A table ends before the sample that would
    exceed ``max_batch_bytes``.

    Args:
        tables: rows by reference, of whole samples, with ``source_ref`` and :data:`BINARY_SIZE`.
        uri: the raw shard. The path in the locators may be another one, since a raw shard may have been moved.
        contents: reads from it.

    Raises:
        ShardError: a locator does not lead to an image of the stated size.
    """
    for table in tables:
        sizes = row_bytes(table) + np.asarray(table[BINARY_SIZE].fill_null(0), np.float64)
        for part in split_samples(table, max_batch_bytes, sizes):
            yield _with_referenced(part, uri, contents)


def _with_referenced(table: pa.Table, uri: str, contents: Contents) -> pa.Table:
    table, stated_sizes = _without_sizes(table)
    locators = table["source_ref"]
    found = resolve({row: source_in(uri, locators[row].as_py()) for row in stated_sizes}, contents)
    _refuse_other_sizes(found, stated_sizes)
    for row, outcome in found.items():
        if isinstance(outcome, str):
            sample, position = table["sample_id"][row].as_py(), table["position"][row].as_py()
            raise ShardError(
                f"{uri} does not hold the image of sample {sample!r}, position {position}: {outcome}. The rows name "
                "another raw shard, or their locators were changed: materialize normalized again"
            )
    return _with_bytes(table, found)


def _without_sizes(table: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Return ``table`` without what rows by reference have, and the bytes of each of these rows, by its number."""
    if not is_by_reference(table.schema):
        return without_raw_versions(table), {}
    sizes = {row: size for row, size in enumerate(table[BINARY_SIZE].to_pylist()) if size is not None}
    return without_raw_versions(table.drop_columns([BINARY_SIZE])), sizes


def _refuse_other_sizes(outcomes: dict[int, Resolved], stated_sizes: Mapping[int, int]) -> None:
    """Replace images of rows by reference that have another size than their row states by errors."""
    for row in outcomes.keys() & stated_sizes.keys():
        outcome = outcomes[row]
        if not isinstance(outcome, str) and (size := sum(map(len, outcome.pieces))) != stated_sizes[row]:
            outcomes[row] = row_error("source_changed", f"{size} bytes instead of the {stated_sizes[row]} of the row")


def _with_bytes(table: pa.Table, outcomes: Mapping[int, Resolved]) -> pa.Table:
    """Return ``table`` with the bytes found for some rows, null for an error, and with their content types."""
    present = table["binary_content"]
    pieces: list[Sequence[Content] | None] = [None] * len(present)
    if present.null_count < len(present):
        pieces = [None if view is None else [view] for view in binary_views(present)]
    types: dict[int, str] = {}
    for row, outcome in outcomes.items():
        pieces[row] = outcome.pieces if isinstance(outcome, RowContent) else None
        if isinstance(outcome, RowContent) and outcome.content_type is not None:
            types[row] = outcome.content_type
    table = _replaced(table, "binary_content", binary_column(pieces))
    if types and "content_type" in table.column_names:
        known = table["content_type"]
        column = [types.get(row, stated) for row, stated in enumerate(known.to_pylist())]
        table = _replaced(table, "content_type", pa.array(column, known.type))
    return table


def _with_errors(table: pa.Table, outcomes: Mapping[int, Resolved], kept: Collection[int]) -> pa.Table:
    """Return ``table`` with the errors of some rows; a row that was filled has none, unless it is one of ``kept``."""
    errors = table["materialize_error"].to_pylist()
    for row, outcome in outcomes.items():
        if isinstance(outcome, RowContent):
            errors[row] = errors[row] if row in kept else None
        # a row without a locator keeps the error that says why it has none
        elif error_code(outcome) != "missing_source" or not errors[row]:
            errors[row] = outcome
    return _replaced(table, "materialize_error", pa.array(errors, pa.string()))


def _refuse_large_samples(outcomes: dict[int, Resolved], sample_ids: Sequence[str], limit: int) -> None:
    """Replace images that exceed ``limit`` bytes in their sample by errors, before any of them is copied."""
    filled: Counter[str] = Counter()
    for (row, outcome), sample_id in zip(outcomes.items(), sample_ids, strict=True):
        if isinstance(outcome, str):
            continue
        size = sum(map(len, outcome.pieces))
        if filled[sample_id] + size <= limit:
            filled[sample_id] += size
        else:
            detail = f"with {size} bytes more the rows of the sample exceed {limit}; raise max_sample_bytes"
            outcomes[row] = row_error("sample_too_large", detail)


def with_fetch_columns(table: pa.Table) -> pa.Table:
    """Return ``table`` with the columns that :func:`materialize` reads and writes, null if they were missing."""
    for name, dtype in (
        ("binary_content", pa.large_binary()),
        ("source_ref", pa.string()),
        ("materialize_error", pa.string()),
    ):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, dtype))
    return table


def bytes_to_fetch(table: pa.Table) -> np.ndarray:
    """Return the bytes that :func:`materialize` would fetch for each row, int64, guessed if the locator does not say.

    Bytes that several rows share are fetched once, and count for the first of these rows; the rows may then take more.
    """
    sizes = np.zeros(table.num_rows, np.int64)
    seen: set[tuple[str | int | None, ...]] = set()
    for row, ref in _refs_to_fill(table):
        source = (ref.path, ref.member, ref.byte_offset, ref.part)
        if source not in seen:
            seen.add(source)
            sizes[row] = ref.byte_size or _GUESSED_BYTES
    return sizes


def unpacks_a_tar(table: pa.Table) -> bool:
    """Return whether :func:`materialize` would unpack a compressed tar, which it does again for each part."""
    return any(is_compressed_tar(ref.path or "") for _, ref in _refs_to_fill(with_fetch_columns(table)))


def _refs_to_fill(table: pa.Table) -> Iterator[tuple[int, SourceRef]]:
    """Yield each row to fill with its locator, except those that cannot be read, which materialize reports."""
    for row in np.flatnonzero(_rows_to_fill(table)).tolist():
        with suppress(ValueError):
            yield row, parse_source_ref(table["source_ref"][row].as_py())


def _rows_to_fill(table: pa.Table) -> np.ndarray:
    is_image, has_bytes = pc.equal(table["modality"], "image"), table["binary_content"].is_valid()
    chosen = np.asarray(is_image, dtype=bool) & ~np.asarray(has_bytes, dtype=bool)
    errors = table["materialize_error"]
    for row in np.flatnonzero(chosen & np.asarray(pc.is_valid(errors), dtype=bool)).tolist():
        chosen[row] = error_code(errors[row].as_py()) in _WORTH_ANOTHER_TRY
    if is_by_reference(table.schema):
        chosen |= np.asarray(table[BINARY_SIZE].is_valid(), dtype=bool)
    return chosen


def _fetched(sources: Collection[Source], access: Access, raws: RawShards) -> dict[Source, Content | str]:
    """Return the bytes of each source, or the row error; one is that its raw shard was replaced meanwhile."""
    return {source: raws.problem_since(source.path) or data for source, data in fetch(sources, access).items()}


def _replaced(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, table.schema.field(place).with_type(column.type), column)
