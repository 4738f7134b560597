"""Rows by reference: the images of a raw tar that rows name by locator and size, read when they are needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.archive.index import TarMember
from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.rows.batches import binary_column, binary_views, row_bytes, split_samples
from interleaved_assets.io.rows.raw_versions import without_raw_versions
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.storage.ranges import BlockReader, Content
from interleaved_assets.io.tiff.frames import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets.model.columns import BINARY_SIZE, BINARY_SIZE_TYPE
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.source_ref import SourceRef, parse_source_ref


def is_by_reference(schema: pa.Schema) -> bool:
    """Return whether rows of ``schema`` name their images by locator and size."""
    return BINARY_SIZE in schema.names and str(schema.field(BINARY_SIZE).type) == BINARY_SIZE_TYPE


def image_bytes(table: pa.Table) -> pa.ChunkedArray:
    """Return the bytes of each row's image, whether ``table`` has them or names them; null for rows without an image.

    Args:
        table: rows with ``binary_content``, and with :data:`BINARY_SIZE` if images are referenced.
    """
    sizes = pc.binary_length(table["binary_content"])
    return pc.coalesce(sizes, table[BINARY_SIZE].cast(pa.int64())) if is_by_reference(table.schema) else sizes


class PartImages(NamedTuple):
    """The images of a raw shard whose locators have a part, which :attr:`.ShardFormat.fetch` reads."""

    uri: str
    fetch: Callable[[str, Sequence[str], StorageOptions, TarLimits], Iterable[tuple[str, bytes | str]]]
    storage_options: StorageOptions
    limits: TarLimits

    def pieces_of(self, refs: Iterable[SourceRef]) -> Iterator[Sequence[Content]]:
        """Yield the bytes of each image; raises ValueError if a locator leads to none."""
        wanted = list(refs)
        parts = list(dict.fromkeys(ref.part for ref in wanted if ref.part is not None))
        found = dict(self.fetch(self.uri, parts, self.storage_options, self.limits))
        for ref in wanted:
            content = found.get(ref.part or "", "the locator has no part of the file")
            if isinstance(content, str):
                raise ValueError(content)
            yield [content]


def fill_referenced(
    tables: Iterable[pa.Table], tar: TarSource | PartImages, max_batch_bytes: int
) -> Iterator[pa.Table]:
    """Yield ``tables`` with the bytes of their images, as if they had been copied, and without :data:`BINARY_SIZE`.

    Images are read in the order of the rows, which is that of the tar. A table ends before the sample that would exceed
    ``max_batch_bytes``.

    Args:
        tables: rows of whole samples with ``source_ref`` and :data:`BINARY_SIZE`.
        tar: the uncompressed tar, or the file of another format, that the locators name. Its path may be another one by
            now.

    Raises:
        ShardError: a locator does not lead to an image of the stated size.
    """
    for table in tables:
        sizes = row_bytes(table) + np.asarray(table[BINARY_SIZE].fill_null(0), np.float64)
        for part in split_samples(table, max_batch_bytes, sizes):
            yield _filled(part, tar)


def _filled(table: pa.Table, tar: TarSource | PartImages) -> pa.Table:
    place = table.column_names.index("binary_content")
    column = table["binary_content"]
    contents: list[Sequence[Content] | None] = [None] * table.num_rows
    if column.null_count < len(column):
        contents = [None if view is None else [view] for view in binary_views(column)]
    sizes = table[BINARY_SIZE].to_pylist()
    locators = table["source_ref"]
    images = tar if isinstance(tar, PartImages) else _Frames(tar)
    rows = np.flatnonzero(np.asarray(table[BINARY_SIZE].is_valid())).tolist()
    found = images.pieces_of(parse_source_ref(locators[row].as_py()) for row in rows)
    for row in rows:
        try:
            pieces = next(found)
        except ValueError as error:
            raise _not_there(table, row, tar, str(error)) from error
        if (size := sum(map(len, pieces))) != sizes[row]:
            raise _not_there(table, row, tar, f"{size} bytes instead of {sizes[row]}")
        contents[row] = pieces
    table = table.set_column(place, table.schema.field(place), binary_column(contents))
    return without_raw_versions(table.drop_columns([BINARY_SIZE]))


def _not_there(table: pa.Table, row: int, tar: TarSource | PartImages, reason: str) -> ShardError:
    sample, position = table["sample_id"][row].as_py(), table["position"][row].as_py()
    return ShardError(
        f"{tar.uri} does not hold the image of sample {sample!r}, position {position}: {reason}. The rows name another "
        "tar, or their locators were changed: materialize normalized again"
    )


class _Frames:
    """The images of a tar by locator. The directory of the last TIFF is kept, since its frames follow each other."""

    def __init__(self, tar: TarSource) -> None:
        self._tar = tar
        self._at: tuple[int, int] | None = None
        self._tiff: BlockReader
        self._found: list[TiffFrame] = []

    def pieces_of(self, refs: Iterable[SourceRef]) -> Iterator[Sequence[Content]]:
        """Yield the pieces of each image; raises ValueError if a locator leads to none."""
        return map(self._pieces, refs)

    def _pieces(self, ref: SourceRef) -> Sequence[Content]:
        """Return the parts of an image; raises ValueError if the locator leads to none."""
        if ref.byte_offset is None or ref.byte_size is None:
            raise ValueError("the locator has no range")
        content = self._tar.content(TarMember(ref.member or "", ref.byte_offset, ref.byte_size))
        if ref.frame_index is None:
            return [content]
        if self._at != (ref.byte_offset, ref.byte_size):
            self._at = (ref.byte_offset, ref.byte_size)
            self._tiff = BlockReader(content)
            self._found = tiff_frames(self._tiff)
        if ref.frame_index >= len(self._found):
            raise ValueError(f"frame {ref.frame_index} of a TIFF with {len(self._found)}")
        return frame_pieces(self._tiff, self._found[ref.frame_index])
