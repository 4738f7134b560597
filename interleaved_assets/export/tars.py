"""Tars with a fixed number of images each, and a Parquet file beside each tar."""

import base64
import contextlib
import json
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.export.names import STAGE, file_stem, image_id, numbered_id
from interleaved_assets.export.reencode import as_jpeg
from interleaved_assets.export.settings import ExportSettings
from interleaved_assets.io.archive.writer import MemberWriter
from interleaved_assets.io.parquet.writer import ParquetShard, parquet_shard
from interleaved_assets.io.rows import content_types
from interleaved_assets.io.rows.batches import binary_column
from interleaved_assets.io.rows.processors import processors
from interleaved_assets.io.storage import AtomicOutput, StorageOptions, atomic_output, join
from interleaved_assets.model.casting import empty_table, with_columns
from interleaved_assets.model.cells import row_values
from interleaved_assets.model.columns import IMAGE_KEY, ROW_KEY
from interleaved_assets.model.errors import ImageError, OptionError, error_code, row_error
from interleaved_assets.model.ledger import empty_ledger, ledger_of
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.scoring.images.size import DEFAULT_MAX_PIXELS, image_size

logger = logging.getLogger(__name__)

_CONTENT: Final = pa.field("binary_content", pa.large_binary(), nullable=False)
_OWN_FIELDS: Final = (
    pa.field("image_id", pa.string(), nullable=False),
    pa.field("tar_file", pa.string(), nullable=False),
    pa.field("member", pa.string(), nullable=False),
    pa.field("original_path", pa.string()),
    pa.field("source_ref", pa.string()),
    pa.field("sample_id", pa.string(), nullable=False),
    pa.field("position", pa.int32(), nullable=False),
    pa.field("original_position", pa.int32(), nullable=False),
    pa.field("width", pa.int32()),
    pa.field("height", pa.int32()),
    pa.field("content_type", pa.string()),
    pa.field("text_before", pa.string()),
    pa.field("text_after", pa.string()),
)
_FROM_ROWS: Final = ("original_path", "source_ref", "sample_id", "position", "text_before", "text_after")
_TEXTS: Final = ("text_before", "text_after")
_ARE_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_WHERE: Final = frozenset({"tar_file", "member"})
_TAKEN: Final = frozenset(field.name for field in (*_OWN_FIELDS, _CONTENT)) - {"width", "height"}


class ImageSet(NamedTuple):
    """The place and the names of the files of one export."""

    folder: str
    """Folder or URL."""
    name: str
    """Part of the names of the files, 16 hex digits."""
    scope: str
    """Part of the ids of the images, 12 hex digits."""


class TarWithTable(NamedTuple):
    """A tar and its table, after they were committed."""

    tar: AtomicOutput
    table: ParquetShard


def score_fields(scores: pa.Schema) -> dict[str, pa.Field]:
    """Return the columns of a score table that are exported with the images, by their name in the export.

    Keys are left out, and so are bytes and lists (thumbnails, embeddings). A name that the table of images uses itself
    gets an underscore at its end.
    """
    return _renamed(
        (
            field
            for field in scores
            if field.name not in IMAGE_KEY
            and not field.type.num_fields
            and not any(is_of(field.type) for is_of in _ARE_BYTES)
        ),
        _TAKEN,
    )


def _renamed(fields: Iterable[pa.Field], taken: Collection[str]) -> dict[str, pa.Field]:
    """Return ``fields`` by their names; a name that is ``taken`` gets underscores at its end."""
    found: dict[str, pa.Field] = {}
    names = set(taken)
    for field in fields:
        name = field.name
        while name in names:
            name += "_"
        names.add(name)
        found[field.name] = field.with_name(name).with_nullable(True)
    return found


class ImageTars:
    """A set of images that :func:`image_tars` opened for writing.

    Attributes:
        schema: the schema of the table of all images, without their bytes.
        images: number of images written so far.
        image_bytes: their bytes.
        chunks: the tars that are complete, with their tables.
    """

    def __init__(
        self,
        place: ImageSet,
        scores: pa.Schema,
        fields: pa.Schema,
        settings: ExportSettings,
        storage_options: StorageOptions,
        max_pixels: int,
        stack: ExitStack,
    ) -> None:
        self._place, self._settings, self._options, self._stack = place, settings, storage_options, stack
        self._max_pixels = max_pixels
        self._scores = score_fields(scores)
        added = [field for field in self._scores.values() if field.name not in ("width", "height")]
        own = pa.schema([*_OWN_FIELDS, *added])
        self._fields = _renamed(fields, {*own.names, _CONTENT.name})
        self.schema = pa.schema([*own, *self._fields.values()])
        self._chunk_schema = self.schema if settings.remove_image_data else self.schema.append(_CONTENT)
        self.images, self.image_bytes = 0, 0
        self.chunks: list[TarWithTable] = []
        self._ids: set[str] = set()
        self._open: tuple[TarWithTable, MemberWriter] | None = None
        self._in_chunk = 0

    def write(self, images: pa.Table, scores: pa.Table, fields: pa.Table | None = None) -> tuple[pa.Table, pa.Table]:
        """Append images; return their rows of the table of all images, and the ledger of those that failed.

        An image fails if it has no bytes, or if it cannot be written in another format. The ledger has its error as the
        reason; its ``stage`` is ``image_export``.

        Args:
            images: as from :func:`~interleaved_assets.export.image_rows.image_rows`. All of its texts are in memory at
                once, so pass one of :func:`~interleaved_assets.export.image_rows.text_parts` at a time.
            scores: one row for each of them, in their order: ``position`` in the raw shard, and any scores.
            fields: in the same way the fields of their documents, null if they have none.

        Raises:
            OptionError: two images have the same sample id and position.
            StorageError: a file cannot be written.
        """
        prepared = self._prepared(images, scores)
        good = [image for image in prepared if isinstance(image, _Image)]
        errors = [image for image in prepared if isinstance(image, str)]
        is_good = pa.array([isinstance(image, _Image) for image in prepared], pa.bool_())
        rows = self._rows(images.select(_FROM_ROWS).filter(is_good), scores.filter(is_good))
        if fields is not None and fields.num_columns:
            for column, name in zip(filter_rows(fields, is_good).columns, fields.column_names, strict=True):
                rows = rows.append_column(self._fields[name].name, column)
        written = [empty_table(self.schema)]
        done = 0
        while done < len(good):
            count = min(len(good) - done, self._settings.images_per_tar - self._in_chunk)
            written.append(self._put(rows.slice(done, count), good[done : done + count]))
            done += count
            if self._in_chunk == self._settings.images_per_tar:
                self.finish()
        ledger = empty_ledger()
        if errors:
            dropped = images.select(ROW_KEY).filter(pc.invert(is_good))
            ledger = ledger_of(dropped, STAGE, [error_code(error) for error in errors], details=errors)
        return pa.concat_tables(written), ledger

    def finish(self) -> None:
        """Complete the open tar, if any; :func:`image_tars` calls this."""
        if self._open is None:
            return
        chunk, members = self._open
        members.finish()
        self._stack.close()
        self.chunks.append(chunk)
        if self._settings.verbose:
            logger.info("%s: %d images, %d bytes", chunk.tar.uri, self._in_chunk, chunk.tar.size)
        self._open, self._in_chunk = None, 0

    def _chunk(self) -> tuple[TarWithTable, MemberWriter]:
        if self._open is None:
            uri = join(self._place.folder, file_stem(self._place.name, len(self.chunks)))
            tar = self._stack.enter_context(atomic_output(f"{uri}.tar", self._options))
            # Contexts close in reverse order, so the table is committed before its tar: a tar never exists without its
            # table.
            table = parquet_shard(f"{uri}.parquet", self._chunk_schema, storage_options=self._options)
            self._open = TarWithTable(tar, self._stack.enter_context(table)), MemberWriter(tar)
        return self._open

    def _prepared(self, images: pa.Table, scores: pa.Table) -> "list[_Image | str]":
        """Return for each image its encoded form, or its error."""
        contents = [content.as_buffer() for content in images["binary_content"]]
        types, errors = images["content_type"].to_pylist(), images["materialize_error"].to_pylist()
        if self._settings.reencode:
            with ThreadPoolExecutor(processors(), thread_name_prefix="export") as pool:
                return list(pool.map(self._reencoded, contents, errors))
        sizes: list[tuple[int | None, int | None]] = [(None, None)] * images.num_rows
        if {"width", "height"} <= self._scores.keys():
            sizes = list(zip(scores["width"].to_pylist(), scores["height"].to_pylist(), strict=True))
        # only a header is read, which takes less time than handing the image to a thread
        return [_as_it_is(*image) for image in zip(contents, errors, types, sizes, strict=True)]

    def _reencoded(self, content: pa.Buffer | None, error: str | None) -> "_Image | str":
        if content is None:
            return _without_bytes(error)
        try:
            image = as_jpeg(content, quality=self._settings.quality, max_pixels=self._max_pixels)
        except ImageError as problem:
            return problem.error
        return _Image(image.content, "image/jpeg", image.width, image.height)

    def _rows(self, images: pa.Table, scores: pa.Table) -> pa.Table:
        """Return the columns of the table that do not depend on how an image is written."""
        columns = {
            name: images[name].cast(pa.large_string()) if name in _TEXTS else images[name] for name in _FROM_ROWS
        }
        columns["original_position"] = scores["position"]
        columns |= {field.name: scores[name] for name, field in self._scores.items()}
        return pa.table(columns)

    def _put(self, rows: pa.Table, images: "Sequence[_Image]") -> pa.Table:
        """Append images to the open chunk; return their rows of the table of all images."""
        chunk, tar = self._chunk()
        ids = self._new_ids(rows)
        members = [f"{own}{image.extension}" for own, image in zip(ids, images, strict=True)]
        own = {
            "image_id": pa.array(ids, pa.string()),
            "tar_file": pa.repeat(pa.scalar(chunk.tar.uri.rpartition("/")[2]), len(ids)),
            "member": pa.array(members, pa.string()),
            "width": pa.array([image.width for image in images], pa.int32()),
            "height": pa.array([image.height for image in images], pa.int32()),
            "content_type": pa.array([image.content_type for image in images], pa.string()),
        }
        columns = {name: own[name] if name in own else rows[name] for name in (*own, *rows.column_names)}
        table = with_columns(pa.table(columns), self.schema)
        for member, document, image in zip(members, _documents(table), images, strict=True):
            tar.put(member, image.content)
            tar.put(f"{member.partition('.')[0]}.json", document)
        full = table
        if not self._settings.remove_image_data:
            full = table.append_column(_CONTENT, binary_column([[memoryview(image.content)] for image in images]))
        chunk.table.write(full)
        self._in_chunk += len(ids)
        self.images += len(ids)
        self.image_bytes += sum(len(image.content) for image in images)
        return table

    def _new_ids(self, rows: pa.Table) -> list[str]:
        if self._settings.names == "sequence":
            return [numbered_id(self._place.name, self.images + row) for row in range(rows.num_rows)]
        keys = zip(rows["sample_id"].to_pylist(), rows["original_position"].to_pylist(), strict=True)
        found = []
        for sample_id, position in keys:
            own = image_id(self._place.scope, sample_id, position)
            if own in self._ids:
                raise OptionError(f"sample {sample_id!r} has two images at position {position}")
            self._ids.add(own)
            found.append(own)
        return found


@contextlib.contextmanager
def image_tars(
    place: ImageSet,
    scores: pa.Schema,
    settings: ExportSettings,
    *,
    fields: pa.Schema | None = None,
    storage_options: StorageOptions = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Iterator[ImageTars]:
    """Write images to ``images-<name>-000000.tar`` and so on, each with a Parquet file of the same name beside it.

    A tar has, for each image, ``<id>.<ending>`` and ``<id>.json`` with its row of the table. Each file appears whole or
    not at all; after an exception the complete files stay. The bytes of the files depend only on the images, the
    scores, the fields and the settings, not on how images are split into tables.

    ``scores`` and ``fields`` are the columns of the tables passed to :meth:`ImageTars.write`.
    """
    with ExitStack() as stack:
        tars = ImageTars(place, scores, fields or pa.schema([]), settings, storage_options, max_pixels, stack)
        yield tars
        tars.finish()


class _Image(NamedTuple):
    """An image in the form in which it is written; size in pixels, None if the header cannot be read."""

    content: pa.Buffer | bytes
    content_type: str | None
    width: int | None
    height: int | None

    @property
    def extension(self) -> str:
        return content_types.extension_of(self.content_type) or ".bin"


def _as_it_is(
    content: pa.Buffer | None, error: str | None, content_type: str | None, size: tuple[int | None, int | None]
) -> _Image | str:
    if content is None:
        return _without_bytes(error)
    if content_types.extension_of(content_type) is None:
        head = content.slice(0, min(content.size, content_types.SNIFFED_BYTES)).to_pybytes()
        content_type = content_types.sniff(head) or content_type
    if None in size:
        # an image without a size is still written, because the export is of its bytes
        with contextlib.suppress(ImageError):
            size = image_size(content)
    return _Image(content, content_type, *size)


def _without_bytes(error: str | None) -> str:
    return error or row_error("missing_source", "the row has no bytes: materialize it before exporting")


def _documents(table: pa.Table) -> Iterator[bytes]:
    """Yield the JSON text of each image."""
    for row in row_values(table.drop_columns(sorted(_WHERE))):
        yield json.dumps(_finite(row), ensure_ascii=False, allow_nan=False, default=_as_text).encode()


def _finite(value: Any) -> Any:
    """Return ``value`` with null for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _as_text(value: Any) -> str:
    """Convert dates, decimals and other values that JSON has no type for to text; bytes become Base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
