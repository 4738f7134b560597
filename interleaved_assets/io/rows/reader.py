"""Base of the shard readers: the search of files, their partitions, and batches of whole samples."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from interleaved_assets.io.rows.batches import join_files, prefetch
from interleaved_assets.io.storage import FilePaths, InputFile, dotted, find_files, group_files, is_local, parse_size
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.schema import align_or_reconcile, resolve_schema
from interleaved_assets.model.source_ref import with_json_locators

logger = logging.getLogger(__name__)


@dataclass
class ShardReader(ABC):
    """Base of the readers of shards, which yield batches of whole samples: ``for batch in reader``.

    Files are grouped into partitions; a batch has rows of one partition. The next batch of Parquet, and of remote tars,
    is read while the current one is in use.

    Attributes:
        file_paths: a glob, a folder (searched recursively), a file, or a list of them; local or any fsspec URL.
        files_per_partition: number of consecutive files in a partition; 1 by default.
        blocksize: instead, size of a partition in bytes: a number or text such as ``"512MiB"``.
        max_batch_bytes: a batch ends before the sample that would exceed this; a larger sample is a batch of its own.
            None: one batch per partition.
        fields: passthrough columns to keep; one that no file has is filled with nulls, with a warning. None keeps all.
        read_kwargs: ``storage_options`` for fsspec, and options of the file format.
        schema: columns and types to align every batch to.
        schema_overrides: types that replace those of ``INTERLEAVED_SCHEMA``, as an alternative to ``schema``.
        file_extensions: extensions of the files to read from a folder or glob, with or without the dot.

    A partition without samples gives one batch without rows. Two samples with the same id in different files of a
    partition are in different batches.
    """

    file_paths: FilePaths
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    max_batch_bytes: int | str | None = None
    fields: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    schema: pa.Schema | None = None
    schema_overrides: Mapping[str, pa.DataType] | None = None
    file_extensions: Sequence[str] = ()

    read_options: ClassVar[frozenset[str]] = frozenset()
    """Options in ``read_kwargs`` besides ``storage_options``."""

    decodes_in_python: ClassVar[bool] = False
    """True if Python code takes most of the time.

    If so, local files are not read in a second thread: the two threads would take turns, which costs a quarter more CPU
    time and gains nothing.
    """

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: an option is invalid.
        """
        options = dict(self.read_kwargs or {})
        self._storage_options: dict[str, Any] = dict(options.pop("storage_options", None) or {})
        if unknown := sorted(set(options) - self.read_options):
            known = ", ".join(sorted(self.read_options | {"storage_options"}))
            raise OptionError(f"read_kwargs has unknown options {', '.join(unknown)}; known are {known}")
        self._options = options
        if isinstance(self.fields, str) or isinstance(self.file_extensions, str):
            raise OptionError("fields and file_extensions are lists of names, not one string")
        if self.fields is not None:
            self.fields = tuple(self.fields)  # each file needs them, and an iterator has them once
            if odd := [name for name in self.fields if not isinstance(name, str)]:
                raise OptionError(f"fields are names of columns, got {odd[0]!r}")
        self.file_extensions = dotted(self.file_extensions, "file_extensions")
        self._limit = None if self.max_batch_bytes is None else parse_size(self.max_batch_bytes, "max_batch_bytes")
        # raises for invalid options before files are searched
        group_files([], self.files_per_partition, self.blocksize)
        self._target = resolve_schema(self.schema, self.schema_overrides)

    @abstractmethod
    def read_files(self, files: Sequence[InputFile]) -> Iterable[tuple[str, Iterable[pa.Table]]]:
        """Yield the URI of each file with its tables of whole samples, each of at most ``self._limit`` bytes."""

    def partitions(self) -> list[list[InputFile]]:
        """Return the files, grouped.

        Raises:
            StorageError: a path is missing or unreadable, or a glob or folder is empty.
        """
        files = find_files(self.file_paths, self.file_extensions, self._storage_options)
        return group_files(files, self.files_per_partition, self.blocksize)

    def __iter__(self) -> Iterator[InterleavedBatch]:
        """Yield the batches, in the order of the files.

        Raises:
            StorageError: a file is missing or unreadable.
            ShardError: a file does not have the format of its extension, cannot be read, or does not fit ``schema``.
        """
        partitions = self.partitions()
        batches = self._batches(partitions)
        all_local = all(is_local(file.uri) for files in partitions for file in files)
        yield from batches if self.decodes_in_python and all_local else prefetch(batches)

    def _batches(self, partitions: list[list[InputFile]]) -> Iterator[InterleavedBatch]:
        for files in partitions:
            for table, sources in join_files(self.read_files(files), self._limit):
                yield InterleavedBatch(align_shard(table, self._target, ", ".join(sources)), sources)


def warn_absent(absent: Iterable[str], uris: Sequence[str], known: Iterable[str]) -> None:
    """Log a warning that no file of a partition has the columns ``absent``, with the columns ``known``."""
    logger.warning(
        "%s: no document or column is named %s; check fields, per_image_fields and per_text_fields. Known names: %s",
        ", ".join(uris),
        ", ".join(sorted(absent)),
        ", ".join(sorted(known)) or "none",
    )


def align_shard(table: pa.Table, target: pa.Schema | None, shard: str) -> pa.Table:
    """Align ``table`` to ``target``, or reconcile it if that is None.

    A ``source_ref`` that is a struct, as other libraries write it, becomes the JSON that it stands for.
    """
    try:
        return align_or_reconcile(with_json_locators(table), target)
    except (ShardError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ShardError(f"{shard}: {error}") from error
