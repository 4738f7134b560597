"""What both shard writers share: names, modes, materialization, the error policy and the schema."""

import hashlib
import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, get_args
from urllib.parse import quote

import pyarrow as pa

from interleaved_assets.io.batches import are_adjacent, split_samples
from interleaved_assets.io.materialize import bytes_to_fetch, materialize_parts, with_fetch_columns
from interleaved_assets.io.policy import apply_error_policy, check_policy
from interleaved_assets.io.reader import align_shard
from interleaved_assets.io.storage import exists, folders_of, join
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import ErrorPolicy, OptionError, StorageError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.model.schema import REQUIRED_COLUMNS, resolve_schema

WriteMode = Literal["error", "overwrite", "append", "ignore"]
MODES: Final[tuple[str, ...]] = get_args(WriteMode)

_STEM_BYTES: Final = 120
_PART_BYTES: Final = 64 * 2**20


@dataclass
class ShardWriter(ABC):
    """Writes each batch as one file of its own.

    A file is named after the batch's source files and how many batches of them came before, so the same input gives the
    same names: ``<stem of the first source>-<hash of all sources>-<number>.<extension>``. A batch without source files
    is named after its rows, ``batch-<hash of them>-<number>.<extension>``, so that writers of other rows into the same
    folder never replace it.

    Attributes:
        output_dir: folder or URL to write below; made where missing.
        schema: columns and types to align every batch to; None keeps all columns and only puts reserved ones right.
        schema_overrides: types laid over ``INTERLEAVED_SCHEMA``, as an alternative to ``schema``.
        materialize_on_write: fetch the bytes of image rows that have none from their ``source_ref``.
        on_materialize_error: what becomes of rows with a ``materialize_error``, whether this fetch or an earlier stage
            set it: ``error``, ``warn``, ``drop_row`` or ``drop_sample``.
        mode: what to do where the file to write is there already. ``error`` raises, ``overwrite`` replaces it,
            ``append`` takes the next number that is free, ``ignore`` leaves it as it is and writes nothing. No mode
            touches any other file.
        write_kwargs: options of the form that is written, and ``storage_options``.
        storage_options: what fsspec needs, for ``output_dir`` and for fetching.
        allowed_roots: folders and URLs that a ``source_ref`` may point below; by default those of the source files.
    """

    output_dir: str
    schema: pa.Schema | None = field(default=None, kw_only=True)
    schema_overrides: Mapping[str, pa.DataType] | None = field(default=None, kw_only=True)
    materialize_on_write: bool = field(default=True, kw_only=True)
    on_materialize_error: ErrorPolicy = field(default="error", kw_only=True)
    mode: WriteMode = field(default="error", kw_only=True)
    write_kwargs: Mapping[str, Any] | None = field(default=None, kw_only=True)
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True)
    allowed_roots: Sequence[str] | None = field(default=None, kw_only=True)

    write_options: ClassVar[frozenset[str]] = frozenset()
    """Names that ``write_kwargs`` may have, besides ``storage_options``."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: one of them makes no sense.
        """
        self.output_dir = str(self.output_dir)
        check_policy(self.on_materialize_error)
        if self.mode not in MODES:
            raise OptionError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        options = dict(self.write_kwargs or {})
        self._storage_options = {**(options.pop("storage_options", None) or {}), **(self.storage_options or {})}
        if unknown := sorted(set(options) - self.write_options):
            known = ", ".join(sorted(self.write_options | {"storage_options"}))
            raise OptionError(f"write_kwargs has unknown options {', '.join(unknown)}; known are {known}")
        self._options = options
        self._target = resolve_schema(self.schema, self.schema_overrides)
        self._numbers: Counter[str] = Counter()
        self._ledgers: list[pa.Table] = []

    @property
    @abstractmethod
    def extension(self) -> str:
        """Ending of the files written, with its dot."""

    @abstractmethod
    def write_shard(self, uri: str, schema: pa.Schema, parts: Iterator[pa.Table]) -> None:
        """Write ``parts`` to ``uri``, atomically: tables of whole samples with ``schema``, ready as they are.

        A part's bytes are fetched only when it is asked for, so they are best written one after the other.
        """

    def check(self, table: pa.Table, shard: str) -> None:
        """Refuse rows that the form has no place for, before anything is fetched or written; to be extended.

        Raises:
            OptionError: a required column is missing; the message names ``shard``, as every other must.
        """
        if missing := [name for name in REQUIRED_COLUMNS if name not in table.column_names]:
            raise OptionError(f"the rows of {shard} lack the required columns {', '.join(missing)}")

    @property
    def ledger(self) -> pa.Table:
        """Ledger of the rows that the error policy dropped so far."""
        return pa.concat_tables([empty_ledger(), *self._ledgers])

    def write(self, batch: InterleavedBatch) -> list[str]:
        """Write ``batch``; gives the paths written: one, or none where ``mode`` is ``ignore`` and the file is there.

        A batch that the error policy empties is written all the same, as a file without rows.

        Raises:
            MaterializeError: policy ``error`` met a row with an error.
            OptionError: the rows lack a required column, or have what the form has no place for.
            ShardError: a required column has nulls, or a value does not fit ``schema``.
            StorageError: the file is there and ``mode`` is ``error``, or it cannot be written.
        """
        table = batch.to_pyarrow()
        self.check(table, _named(batch))
        stem = _stem(batch.source_files, table)
        number, uri = self._next_free(stem)
        if uri is not None:
            self._write_parts(uri, align_shard(table, None, _named(batch)), batch)
        # a batch that failed leaves its number to the next try
        self._numbers[stem] = number + 1
        return [] if uri is None else [uri]

    def _write_parts(self, uri: str, table: pa.Table, batch: InterleavedBatch) -> None:
        sizes = None
        if self.materialize_on_write:
            table = with_fetch_columns(table)
            sizes = bytes_to_fetch(table)
        # what is to be fetched is fetched a part at a time, so that it never lies in memory all at once
        is_lazy = sizes is not None and sizes.any() and are_adjacent(table["sample_id"])
        parts: Iterable[pa.Table] = split_samples(table, _PART_BYTES, sizes) if is_lazy else [table]
        schema = table.schema if self._target is None else self._target
        dropped: list[pa.Table] = []
        if is_lazy:
            parts = (filled for part in parts for filled in self._materialized(part, batch, _PART_BYTES))
        elif self.materialize_on_write:
            # rows of a sample that are not adjacent cannot be cut apart
            parts = self._materialized(table, batch, None)
        self.write_shard(uri, schema, (self._ready(part, batch, schema, dropped) for part in parts))
        self._ledgers += dropped

    def _materialized(self, part: pa.Table, batch: InterleavedBatch, limit: int | None) -> Iterator[pa.Table]:
        roots = folders_of(batch.source_files) if self.allowed_roots is None else self.allowed_roots
        return materialize_parts(part, limit, storage_options=self._storage_options, allowed_roots=roots)

    def _ready(self, part: pa.Table, batch: InterleavedBatch, schema: pa.Schema, dropped: list[pa.Table]) -> pa.Table:
        kept, ledger = apply_error_policy(part, self.on_materialize_error, shard=_named(batch), stage="write")
        if ledger.num_rows:
            dropped.append(ledger)
        return align_shard(kept, schema, _named(batch))

    def _next_free(self, stem: str) -> tuple[int, str | None]:
        number = self._numbers[stem]
        while True:
            uri = join(self.output_dir, f"{stem}-{number:05d}{self.extension}")
            if self.mode == "overwrite" or not exists(uri, self._storage_options):
                return number, uri
            if self.mode == "ignore":
                return number, None
            if self.mode == "error":
                raise StorageError(
                    f"cannot write {uri}: it is there already. Choose mode='overwrite', 'append' or 'ignore', "
                    "or another output_dir."
                )
            number += 1


def _stem(source_files: tuple[str, ...], table: pa.Table) -> str:
    """Name of the first source without its endings, and a hash of all, which tells equal names apart."""
    if not source_files:
        return f"batch-{_rows_hash(table)}"
    name = source_files[0].rpartition("/")[2]
    readable = quote(name.partition(".")[0], safe="").encode()[:_STEM_BYTES].decode() or "batch"
    digest = hashlib.sha256("\n".join(source_files).encode()).hexdigest()[:12]
    return f"{readable}-{digest}"


def _rows_hash(table: pa.Table) -> str:
    """Hash of all rows; that of equal rows in other chunks may differ."""
    digest = _Digest()
    with pa.ipc.new_stream(pa.PythonFile(digest, mode="w"), table.schema) as stream:
        stream.write_table(table)
    return digest.sha256.hexdigest()[:12]


class _Digest(io.RawIOBase):
    """A file to write to, of which only the hash is kept."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return len(data)


def _named(batch: InterleavedBatch) -> str:
    return ", ".join(batch.source_files) or "a batch without source files"
