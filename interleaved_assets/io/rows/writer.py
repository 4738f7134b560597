"""Base of the shard writers: file names, modes, materialization, the error policy and the schema."""

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, get_args
from urllib.parse import quote

import pyarrow as pa

from interleaved_assets.io.rows.fetch import Access
from interleaved_assets.io.rows.fill import fetched_parts, with_fetch_columns
from interleaved_assets.io.rows.policy import apply_error_policy, check_policy
from interleaved_assets.io.rows.reader import align_shard
from interleaved_assets.io.storage import as_uri, exists, folders_of, join
from interleaved_assets.io.storage.limits import limits_of
from interleaved_assets.model.batch import InterleavedBatch, check_batch
from interleaved_assets.model.columns import REQUIRED_COLUMNS
from interleaved_assets.model.errors import ErrorPolicy, OptionError, StorageError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.model.schema import resolve_schema

WriteMode = Literal["error", "overwrite", "append", "ignore"]
MODES: Final[tuple[str, ...]] = get_args(WriteMode)

_STEM_BYTES: Final = 120
_PART_BYTES: Final = 64 * 2**20
_HASHED_ROWS: Final = 100

_NUMBERING: Final = threading.Lock()
"""Held while a number is counted; one of the module, since a writer with a lock could not be pickled."""

_FETCH_OPTIONS: Final = frozenset({"max_member_bytes", "max_sample_bytes", "max_unpacked_bytes"})


@dataclass
class ShardWriter(ABC):
    """Base of the writers of shards, which write each batch to its own file.

    A file is named after the batch's source files and the number of earlier batches of them, so the same input gives
    the same names: ``<stem of the first source>-<hash of all sources>-<number>.<extension>``. A batch without source
    files is named after its rows, ``batch-<hash of the rows>-<number>.<extension>``, so writers of other rows to one
    folder do not replace it. Threads may share a writer; numbers then follow the order of their calls. Processes that
    write batches of the same files need folders of their own.

    Attributes:
        output_dir: folder or URL for the files; created if missing.
        schema: columns and types to align every batch to; None keeps all columns and only casts reserved ones.
        schema_overrides: types that replace those of ``INTERLEAVED_SCHEMA``, as an alternative to ``schema``.
        materialize_on_write: fetch the bytes of image rows that have none from their ``source_ref``.
        on_materialize_error: error policy for rows with a ``materialize_error``, set here or by an earlier stage:
            ``error``, ``warn``, ``drop_row`` or ``drop_sample``.
        mode: the handling of a file that exists. ``error`` raises, ``overwrite`` replaces it, ``append`` uses the next
            free number, ``ignore`` keeps it and writes nothing. Other files are never changed.
        write_kwargs: options of the file format, ``storage_options``, and the limits for fetching:
            ``max_member_bytes``, ``max_sample_bytes``, ``max_unpacked_bytes``, in bytes or as text such as ``"1GiB"``.
        storage_options: fsspec options, for ``output_dir`` and for fetching.
        allowed_roots: folders and URLs from which a ``source_ref`` may be fetched; by default those of the source
            files.
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
    """Options in ``write_kwargs`` besides ``storage_options`` and the limits for fetching."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: an option is invalid.
        """
        self.output_dir = as_uri(self.output_dir, "output_dir")
        check_policy(self.on_materialize_error)
        if self.mode not in MODES:
            raise OptionError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        options = dict(self.write_kwargs or {})
        self._storage_options = {**(options.pop("storage_options", None) or {}), **(self.storage_options or {})}
        known = {*self.write_options, *_FETCH_OPTIONS}
        if unknown := sorted(set(options) - known):
            listed = ", ".join(sorted(known | {"storage_options"}))
            raise OptionError(f"write_kwargs has unknown options {', '.join(unknown)}; known are {listed}")
        self._limits = limits_of(options)
        self._options = {name: value for name, value in options.items() if name in self.write_options}
        self._target = resolve_schema(self.schema, self.schema_overrides)
        self._numbers: Counter[str] = Counter()
        self._ledgers: list[pa.Table] = []

    @property
    @abstractmethod
    def extension(self) -> str:
        """Extension of the files, with its dot."""

    @abstractmethod
    def write_shard(self, uri: str, schema: pa.Schema, parts: Iterator[pa.Table]) -> None:
        """Write ``parts`` to ``uri`` atomically: tables of whole samples, aligned to ``schema``.

        The bytes of a part are fetched when the iterator yields it, so write each part before taking the next.
        """

    def check(self, table: pa.Table, shard: str) -> None:
        """Refuse rows that the file format cannot hold, before anything is fetched or written. Subclasses extend it.

        Raises:
            OptionError: a required column is missing; the message names ``shard``, also in subclasses.
        """
        if missing := [name for name in REQUIRED_COLUMNS if name not in table.column_names]:
            raise OptionError(f"the rows of {shard} lack the required columns {', '.join(missing)}")

    @property
    def ledger(self) -> pa.Table:
        """Ledger of the rows that the error policy dropped so far."""
        return pa.concat_tables([empty_ledger(), *self._ledgers])

    def write(self, batch: InterleavedBatch) -> list[str]:
        """Write ``batch``; return the paths written: one, or none if ``mode`` is ``ignore`` and the file exists.

        A batch whose rows are all dropped by the error policy is written as a file without rows.

        Raises:
            MaterializeError: policy ``error`` met a row with an error.
            OptionError: the rows lack a required column, or the file format cannot hold them.
            ShardError: a required column has nulls, or a value does not fit ``schema``.
            StorageError: the file exists and ``mode`` is ``error``, or it cannot be written.
        """
        check_batch(batch, "write")
        table = batch.to_pyarrow()
        self.check(table, _named(batch))
        stem = _stem(batch.source_files, table)
        number = self._next_number(stem)
        try:
            while (uri := self._free(stem, number)) is None:
                if self.mode == "ignore":
                    return []
                number = self._next_number(stem)
            self._write_parts(uri, align_shard(table, None, _named(batch)), batch)
        except BaseException:
            with _NUMBERING:
                if self._numbers[stem] == number + 1:  # the next attempt uses the same number
                    self._numbers[stem] = number
            raise
        return [uri]

    def _next_number(self, stem: str) -> int:
        with _NUMBERING:
            self._numbers[stem] += 1
            return self._numbers[stem] - 1

    def _write_parts(self, uri: str, table: pa.Table, batch: InterleavedBatch) -> None:
        parts: Iterable[pa.Table] = [table]
        if self.materialize_on_write:
            table = with_fetch_columns(table)
            roots = folders_of(batch.source_files) if self.allowed_roots is None else self.allowed_roots
            parts = fetched_parts(table, _PART_BYTES, Access(self._storage_options, roots, self._limits))
        schema = table.schema if self._target is None else self._target
        dropped: list[pa.Table] = []
        self.write_shard(uri, schema, (self._ready(part, batch, schema, dropped) for part in parts))
        self._ledgers += dropped

    def _ready(self, part: pa.Table, batch: InterleavedBatch, schema: pa.Schema, dropped: list[pa.Table]) -> pa.Table:
        kept, ledger = apply_error_policy(part, self.on_materialize_error, shard=_named(batch), stage="write")
        if ledger.num_rows:
            dropped.append(ledger)
        return align_shard(kept, schema, _named(batch))

    def _free(self, stem: str, number: int) -> str | None:
        """Return the path of a file that may be written, None if it exists and ``mode`` keeps it."""
        uri = join(self.output_dir, f"{stem}-{number:05d}{self.extension}")
        if self.mode == "overwrite" or not exists(uri, self._storage_options):
            return uri
        if self.mode == "error":
            raise StorageError(
                f"cannot write {uri}: the file exists. Choose mode='overwrite', 'append' or 'ignore', "
                "or another output_dir."
            )
        return None


def _stem(source_files: tuple[str, ...], table: pa.Table) -> str:
    """Return the name of the first source file without extensions, with a hash of all source paths."""
    if not source_files:
        return f"batch-{_rows_hash(table)}"
    name = source_files[0].rpartition("/")[2]
    readable = quote(name.partition(".")[0], safe="").encode()[:_STEM_BYTES].decode() or "batch"
    digest = hashlib.sha256("\n".join(source_files).encode()).hexdigest()[:12]
    return f"{readable}-{digest}"


def _rows_hash(table: pa.Table) -> str:
    """Hash all rows; the hash may differ for equal rows in other chunks."""
    digest = hashlib.sha256(table.schema.serialize())
    for part in table.to_batches(max_chunksize=_HASHED_ROWS):
        digest.update(part.serialize())
    return digest.hexdigest()[:12]


def _named(batch: InterleavedBatch) -> str:
    return ", ".join(batch.source_files) or "a batch without source files"
