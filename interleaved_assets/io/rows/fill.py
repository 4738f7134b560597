"""Filling of image rows with the bytes that their ``source_ref`` names.

Ranges, members of tars and whole files are fetched once each, also if many rows share them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import binary_column, binary_views, row_bytes, split_samples
from interleaved_assets.io.rows.content_types import SNIFFED_BYTES, TIFF, sniff
from interleaved_assets.io.rows.fetch import Source, fetch, is_compressed_tar
from interleaved_assets.io.rows.raw_versions import RawShards, without_raw_versions
from interleaved_assets.io.rows.referenced import is_by_reference
from interleaved_assets.io.storage import StorageOptions, check_allowed
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.ranges import BlockReader, Content
from interleaved_assets.io.tiff.frames import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.errors import error_code, row_error
from interleaved_assets.model.source_ref import parse_source_ref

_GUESSED_BYTES: Final = 2**20

# Errors of an earlier fetch that a new fetch may resolve. All others describe the shard, and stay.
_WORTH_ANOTHER_TRY: Final = frozenset({"unreadable_source", "short_read", "forbidden_path", "member_too_large"})


class _Found(NamedTuple):
    """The parts of a row's bytes; ``content_type`` is set if their type differs from the one that the row states."""

    pieces: Sequence[Content]
    content_type: str | None = None


# The result for one row: its bytes, or an error.
_Outcome = _Found | str


# The source to fetch for one row, and the frame to take from it; None for all of it.
_Plan = tuple[Source, int | None]


def materialize(
    table: pa.Table,
    *,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    only_missing: bool = True,
    limits: TarLimits = LIMITS,
) -> pa.Table:
    """Return ``table`` with ``binary_content`` filled in for image rows.

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
        only_missing: leave rows that have bytes alone; else fetch them again.
        limits: limits for the bytes fetched for one row (``max_member_bytes``), for the unpacked size of a compressed
            tar in a temporary file (``max_unpacked_bytes``), and for the bytes that the rows of one sample get together
            (``max_sample_bytes``); bytes that several rows share count for each of them.

    Raises:
        StorageUnavailable: the storage failed in a way that may pass; trying again later may succeed.
    """
    parts = materialize_parts(
        table,
        None,
        storage_options=storage_options,
        allowed_roots=allowed_roots,
        only_missing=only_missing,
        limits=limits,
    )
    return next(parts)


def materialize_parts(
    table: pa.Table,
    max_batch_bytes: int | None,
    *,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    only_missing: bool = True,
    limits: TarLimits = LIMITS,
) -> Iterator[pa.Table]:
    """Yield the result of :func:`materialize` in parts of whole samples of at most ``max_batch_bytes``.

    A larger sample is a part of its own. Rows may share bytes, and so take far more memory than was fetched: only one
    part is made at a time. There is at least one part.
    """
    table = with_fetch_columns(table)
    chosen = _rows_to_fill(table, only_missing)
    raws = RawShards(table.schema, storage_options)
    table, stated_sizes = _without_sizes(table)
    if not chosen.any():
        yield table
        return
    rows = np.flatnonzero(chosen)
    locators = table["source_ref"].take(pa.array(rows)).to_pylist()
    outcomes = _outcomes(locators, allowed_roots or (), storage_options, limits, raws)
    found = dict(zip(rows.tolist(), outcomes, strict=True))
    _refuse_other_sizes(found, stated_sizes)
    _refuse_large_samples(found, table["sample_id"].take(pa.array(rows)).to_pylist(), limits.max_sample_bytes)
    sizes = row_bytes(table)
    for row, outcome in found.items():
        if isinstance(outcome, _Found):
            sizes[row] += sum(map(len, outcome.pieces))
    first = 0
    for part in split_samples(table, max_batch_bytes, sizes):
        rows_of_part = range(first, first + part.num_rows)
        outcomes_of_part = {row - first: found[row] for row in rows_of_part if row in found}
        yield _filled(part, outcomes_of_part, {row - first for row in rows_of_part if row in stated_sizes})
        first += part.num_rows


def _without_sizes(table: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Return ``table`` without what rows by reference have, and the bytes of each of these rows, by its number."""
    if not is_by_reference(table.schema):
        return without_raw_versions(table), {}
    sizes = {row: size for row, size in enumerate(table[BINARY_SIZE].to_pylist()) if size is not None}
    return without_raw_versions(table.drop_columns([BINARY_SIZE])), sizes


def _refuse_other_sizes(outcomes: dict[int, _Outcome], stated_sizes: Mapping[int, int]) -> None:
    """Replace images of rows by reference that have another size than their row states by errors."""
    for row in outcomes.keys() & stated_sizes.keys():
        outcome = outcomes[row]
        if not isinstance(outcome, str) and (size := sum(map(len, outcome.pieces))) != stated_sizes[row]:
            outcomes[row] = row_error("source_changed", f"{size} bytes instead of the {stated_sizes[row]} of the row")


def _filled(table: pa.Table, outcomes: Mapping[int, _Outcome], kept_errors: AbstractSet[int]) -> pa.Table:
    """Return ``table`` with bytes or an error filled in for some rows; ``kept_errors`` are rows whose error stays."""
    errors = table["materialize_error"].to_pylist()
    present = table["binary_content"]
    pieces: list[Sequence[Content] | None] = [None] * len(present)
    if present.null_count < len(present):
        pieces = [None if view is None else [view] for view in binary_views(present)]
    types: dict[int, str] = {}
    for row, outcome in outcomes.items():
        if isinstance(outcome, _Found):
            pieces[row] = outcome.pieces
            errors[row] = errors[row] if row in kept_errors else None
            if outcome.content_type is not None:
                types[row] = outcome.content_type
            continue
        pieces[row] = None
        # a row without a locator keeps the error that says why it has none
        if error_code(outcome) != "missing_source" or not errors[row]:
            errors[row] = outcome
    table = _replaced(table, "binary_content", binary_column(pieces))
    table = _replaced(table, "materialize_error", pa.array(errors, pa.string()))
    if types and "content_type" in table.column_names:
        known = table["content_type"]
        column = [types.get(row, stated) for row, stated in enumerate(known.to_pylist())]
        table = _replaced(table, "content_type", pa.array(column, known.type))
    return table


def _refuse_large_samples(outcomes: dict[int, _Outcome], sample_ids: Sequence[str], limit: int) -> None:
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
    for row in np.flatnonzero(_rows_to_fill(table, only_missing=True)).tolist():
        try:
            ref = parse_source_ref(table["source_ref"][row].as_py())
        except ValueError:
            continue  # materialize reports it
        source = (ref.path, ref.member, ref.byte_offset, ref.part)
        if source not in seen:
            seen.add(source)
            sizes[row] = ref.byte_size or _GUESSED_BYTES
    return sizes


def _rows_to_fill(table: pa.Table, only_missing: bool) -> np.ndarray:
    chosen = np.asarray(pc.equal(table["modality"], "image"), dtype=bool)
    if only_missing:
        chosen &= np.asarray(pc.is_null(table["binary_content"]), dtype=bool)
    errors = table["materialize_error"]
    for row in np.flatnonzero(chosen & np.asarray(pc.is_valid(errors), dtype=bool)).tolist():
        chosen[row] = error_code(errors[row].as_py()) in _WORTH_ANOTHER_TRY
    if is_by_reference(table.schema):
        chosen |= np.asarray(table[BINARY_SIZE].is_valid(), dtype=bool)
    return chosen


def _outcomes(
    locators: list[str | None],
    allowed_roots: Sequence[str],
    storage_options: StorageOptions,
    limits: TarLimits,
    raws: RawShards,
) -> list[_Outcome]:
    allowed: dict[str, bool] = {}
    plans = [_plan(locator, allowed_roots, allowed) for locator in locators]
    plans = [plan if isinstance(plan, str) else raws.problem(plan[0].path) or plan for plan in plans]
    sources = dict.fromkeys(plan[0] for plan in plans if not isinstance(plan, str))
    fetched = fetch(sources, storage_options=storage_options, limits=limits)
    fetched = {source: raws.problem_since(source.path) or data for source, data in fetched.items()}
    frames: dict[Source, tuple[BlockReader, list[TiffFrame]] | str] = {}
    return [plan if isinstance(plan, str) else _outcome(*plan, fetched[plan[0]], frames) for plan in plans]


def _plan(locator: str | None, allowed_roots: Sequence[str], allowed: dict[str, bool]) -> _Plan | str:
    """Return the source to fetch for a row, or the row's error; ``allowed`` caches which paths are allowed."""
    try:
        ref = parse_source_ref(locator)
    except ValueError as error:
        return row_error("invalid_source_ref", str(error))
    path = ref.path
    if not path:
        return row_error("missing_source", "the row has neither bytes nor a path in source_ref")
    if path not in allowed:
        allowed[path] = check_allowed(path, allowed_roots)
    if not allowed[path]:
        return row_error("forbidden_path", f"{path} is not below {', '.join(allowed_roots) or 'any allowed root'}")
    if ref.part is not None:
        return Source(path, part=ref.part), ref.frame_index
    # an empty range beside a member's name means that the range is not known
    by_name = ref.member and (ref.byte_size == 0 or is_compressed_tar(path))
    if ref.byte_offset is not None and ref.byte_size is not None and not by_name:
        return Source(path, None, ref.byte_offset, ref.byte_offset + ref.byte_size), ref.frame_index
    if ref.member is None and (ref.byte_offset is not None or ref.byte_size is not None):
        return row_error("invalid_source_ref", "byte_offset and byte_size go together")
    return Source(path, ref.member), ref.frame_index


def _outcome(
    source: Source,
    frame: int | None,
    data: BytesLike | str,
    frames: dict[Source, tuple[BlockReader, list[TiffFrame]] | str],
) -> _Outcome:
    if isinstance(data, str):
        return data
    if frame is None:
        return _Found([data])
    content_type = sniff(bytes(data[:SNIFFED_BYTES]))
    if content_type not in (None, TIFF):
        if frame == 0:
            return _Found([data], content_type)
        detail = f"frame {frame} of what is {content_type} and no TIFF: its one image is frame 0"
        return row_error("frame_out_of_range", detail)
    if source not in frames:
        try:
            tiff = BlockReader(data)
            frames[source] = tiff, tiff_frames(tiff)
        except ValueError as error:
            frames[source] = row_error("invalid_tiff", str(error))
    known = frames[source]
    if isinstance(known, str):
        return known
    tiff, found = known
    if frame >= len(found) and found[-1].error is not None:
        # if the chain of directories is damaged, the number of frames is unknown
        return row_error("invalid_tiff", found[-1].error)
    if frame >= len(found):
        return row_error("frame_out_of_range", f"frame {frame} of a TIFF with {len(found)}")
    try:
        return _Found(frame_pieces(tiff, found[frame]))
    except ValueError as error:
        return row_error("invalid_tiff", str(error))


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), pa.field(name, column.type), column)
