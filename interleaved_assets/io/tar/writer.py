"""Writer of tars of interleaved documents that MINT-1T readers and ``webdataset`` understand."""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.archive.index import BLOCK, RECORD, member_header, padding, shortened
from interleaved_assets.io.archive.writer import MemberWriter
from interleaved_assets.io.rows.batches import gathered
from interleaved_assets.io.rows.writer import ShardWriter
from interleaved_assets.io.storage import AtomicOutput, StorageOptions, as_uri, atomic_output
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.exact import MODALITIES, Exact, check_columns
from interleaved_assets.io.tar.layout import COMPRESSED_ENDINGS, EXACT_FIELD
from interleaved_assets.io.tar.members import TarDocuments
from interleaved_assets.model.batch import InterleavedBatch, check_batch
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError, UnsupportedModality
from interleaved_assets.model.row_checks import check_present
from interleaved_assets.model.schema import align_or_reconcile

_GZIP_LEVEL: Final = 6


class TarShard:
    """A tar that :func:`tar_shard` opened for writing.

    Attributes:
        uri: its final path or URL.
        output: its file, which has its size, checksum and stamp once it is committed.
        rows: number of rows written so far.
    """

    def __init__(self, output: AtomicOutput, sink: Any, limits: TarLimits) -> None:
        self.uri, self.output, self.rows = output.uri, output, 0
        self._members, self._limits, self._is_finished = MemberWriter(sink), limits, False
        self._schema: pa.Schema | None = None
        self._ids: set[str] = set()

    def write(self, table: pa.Table) -> None:
        """Append the samples of ``table``, each of them whole.

        Rows may be in any order; in the tar, samples are in the order of their first rows, and rows in that of their
        positions.

        Raises:
            UnsupportedModality: a row has another modality than metadata, text, image, table and audio.
            OptionError: the rows are not a valid batch, have other columns than those before, continue a sample that
                was written before, or could not be read back: a value is damaged or out of its type's range, or a
                sample is over a limit.
            StorageError: the tar cannot be written.
        """
        table = checked_rows(table, self.uri, self._limits)
        if table.num_rows == 0:
            return
        if self._schema is not None and table.schema != self._schema:
            raise OptionError(f"cannot write {self.uri}: the rows have other columns than those before them")
        ids = set(pc.unique(table["sample_id"]).to_pylist())
        if repeated := ids & self._ids:
            name = min(repeated)
            raise OptionError(f"cannot write {self.uri}: sample {name!r} was written before; give all its rows at once")
        try:
            for members in TarDocuments(table, states_schema=self._schema is None, limits=self._limits):
                for name, content in members:
                    self._members.put(name, content)
        except OptionError as error:
            raise OptionError(f"cannot write {self.uri}: {error}") from error
        self._schema = table.schema
        self._ids |= ids
        self.rows += table.num_rows

    def finish(self) -> None:
        """Write the end mark, unless it is written already; :func:`tar_shard` calls this.

        After that, :meth:`.AtomicOutput.store` may store a tar that is not compressed.
        """
        if not self._is_finished:
            self._members.finish()
            self._is_finished = True


@contextmanager
def tar_shard(
    uri: str | PathLike[str], *, storage_options: StorageOptions = None, limits: TarLimits = LIMITS
) -> Iterator[TarShard]:
    """Write a tar that appears whole at the end of the block, or not at all.

    It holds, for each sample, ``<key>.json`` and then ``<key>.<position>.<extension>`` for each image. The key is made
    from the sample's id (see :func:`~.layout.member_key`). Its bytes depend on the rows alone: no time, no owner. A tar
    whose name ends in ``.tar.gz`` or ``.tgz`` is compressed.

    Args:
        uri: path or URL of the tar.
        storage_options: fsspec options.
        limits: the limits that it will be read with; a sample over one of them is refused.

    Raises:
        StorageError: the tar cannot be written.
    """
    uri = as_uri(uri, "uri")
    with atomic_output(uri, storage_options) as output, ExitStack() as stack:
        sink: Any = output
        if uri.lower().endswith(COMPRESSED_ENDINGS):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=output, compresslevel=_GZIP_LEVEL, mtime=0)
            sink = stack.enter_context(packed)
        shard = TarShard(output, sink, limits)
        yield shard
        shard.finish()


@dataclass
class InterleavedWebdatasetWriter(ShardWriter):
    """A writer that writes each batch as one tar of interleaved documents.

    Its options are those of :class:`ShardWriter`, and this. ``write_kwargs`` may have the limits of :class:`TarLimits`
    that the tars will be read with: a sample over one of them is refused.

    Attributes:
        file_extension: ending of the files, without a leading dot; ``tar.gz`` and ``tgz`` are compressed.
    """

    file_extension: str = field(default="tar", kw_only=True)

    write_options: ClassVar[frozenset[str]] = frozenset(TarLimits._fields)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"\w+(\.\w+)*", self.file_extension):
            raise OptionError(f"file_extension must be an ending such as 'tar', got {self.file_extension!r}")

    @property
    def extension(self) -> str:
        return f".{self.file_extension}"

    def check(self, table: pa.Table, shard: str) -> None:
        super().check(table, shard)
        check_modalities(table, shard)

    def write(self, batch: InterleavedBatch) -> list[str]:
        check_batch(batch, "write")
        table = batch.to_pyarrow()
        if "sample_id" in table.column_names:
            # rows are written in parts, and a part must have all rows of its samples
            batch = batch.with_table(gathered(table))
        return super().write(batch)

    # the columns of a tar follow from its rows
    def write_shard(self, uri: str, schema: pa.Schema, parts: Iterator[pa.Table]) -> None:  # noqa: ARG002
        with tar_shard(uri, storage_options=self._storage_options, limits=self._limits) as shard:
            for part in parts:
                shard.write(part)


def checked_rows(table: pa.Table, uri: str, limits: TarLimits = LIMITS) -> pa.Table:
    """Return ``table`` with the reserved columns in their types, as :class:`~.members.TarDocuments` needs it."""
    check_modalities(table, uri)
    if table.num_rows == 0:
        return table
    table = align_or_reconcile(table, None)
    if problems := [*_damage(table, limits), *InterleavedBatch(table).problems()]:
        raise OptionError(f"cannot write {uri}: {'; '.join(problems)}")
    return table


def _damage(table: pa.Table, limits: TarLimits) -> Iterator[str]:
    """Yield the values and columns that could not be read back, besides those that make the batch invalid."""
    others = table.drop_columns([name for name in ("binary_content",) if name in table.column_names])
    passthrough = len(set(table.column_names) - RESERVED_COLUMNS)
    if passthrough > limits.max_columns:
        yield f"there are {passthrough} passthrough columns, over max_columns {limits.max_columns}"
    try:
        check_columns(table.schema)
    except ValueError as error:
        yield str(error).replace("_interleaved", "the table")
    try:
        others.validate(full=True)
    except pa.ArrowInvalid as error:
        yield _first_damaged(others) or str(error)


def _first_damaged(table: pa.Table) -> str | None:
    """Return the first cell of the first column that is damaged, or has a time or a date out of its type's range."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _problem(column) is None:
            continue
        for row in range(table.num_rows):
            if problem := _problem(column.slice(row, 1).combine_chunks()):
                return f"sample {shortened(str(table['sample_id'][row]))!r}, column {name!r}: {problem}"
    return None


def _problem(values: pa.Array | pa.ChunkedArray) -> str | None:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def check_modalities(table: pa.Table, shard: str) -> None:
    """Refuse rows with a modality that a tar cannot hold."""
    check_present(table.column_names, ("modality",), f"cannot write {shard}")
    others = sorted({str(name) for name in pc.unique(table["modality"]).to_pylist()} - MODALITIES.keys() - {"None"})
    if others:
        raise UnsupportedModality(
            f"{shard}: tars have a place for {', '.join(MODALITIES)}, and none for {', '.join(others)}. "
            "Take those rows out, or write Parquet."
        )


def sample_sizes(table: pa.Table, uri: str, limits: TarLimits = LIMITS) -> list[int]:
    """Return the bytes of the members of each sample, with their headers, in the order of the tar.

    The first sample of a tar may take :func:`schema_bytes` more.
    """
    table = checked_rows(table, uri, limits)
    if not table.num_rows:
        return []
    try:
        documents = TarDocuments(table, states_schema=False, limits=limits)
        return [sum(_member_bytes(*member) for member in members) for members in documents]
    except OptionError as error:
        raise OptionError(f"cannot write {uri}: {error}") from error


def schema_bytes(schema: pa.Schema) -> int:
    """Return the most bytes that the first document of a tar takes beyond its own, to state the columns."""
    said = json.dumps({EXACT_FIELD: Exact(schema=schema.remove_metadata()).to_json()})
    return len(said) + BLOCK


def room_for_samples(tar_bytes: int) -> int:
    """Return the bytes that the samples of a tar may take together so that the whole file has at most ``tar_bytes``.

    The result is negative if even an empty tar has more.
    """
    return tar_bytes // RECORD * RECORD - 2 * BLOCK


def _member_bytes(name: str, content: BytesLike) -> int:
    size = len(content)
    return len(member_header(name, size)) + size + len(padding(size))
