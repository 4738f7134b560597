"""What both shard readers share: finding files, partitions, batches of whole samples, columns and types."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from interleaved_assets.io.batches import join_files, prefetch
from interleaved_assets.io.storage import FilePaths, InputFile, dotted, find_files, group_files, parse_size
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.schema import align_or_reconcile, resolve_schema

logger = logging.getLogger(__name__)


@dataclass
class ShardReader(ABC):
    """Reads shards as batches of whole samples: ``for batch in reader``.

    Files are grouped into partitions; a batch never goes beyond its partition. The next batch is read while the one
    before is in use.

    Attributes:
        file_paths: a glob, a folder (searched recursively), a file, or a list of them; local or any fsspec URL.
        files_per_partition: so many consecutive files are read as one stream; 1 by default.
        blocksize: instead, files of so many bytes together: a number or text such as ``"512MiB"``.
        max_batch_bytes: a batch is cut before the sample that would exceed it; a larger sample is a batch of its own.
            None: one batch per partition.
        fields: passthrough columns to keep; one that no file has is null, and is logged as a warning. None keeps all.
        read_kwargs: ``storage_options`` for fsspec, and options of the form that is read.
        schema: columns and types to align every batch to.
        schema_overrides: types laid over ``INTERLEAVED_SCHEMA``, as an alternative to ``schema``.
        file_extensions: what a file in a folder or a glob must end in, with or without the dot.

    A partition whose files have no samples gives one batch without rows. Two samples with one id in different files of
    a partition never share a batch: the second begins a new one.
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
    """Names that ``read_kwargs`` may have, besides ``storage_options``."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: one of them makes no sense.
        """
        options = dict(self.read_kwargs or {})
        self._storage_options: dict[str, Any] = dict(options.pop("storage_options", None) or {})
        if unknown := sorted(set(options) - self.read_options):
            known = ", ".join(sorted(self.read_options | {"storage_options"}))
            raise OptionError(f"read_kwargs has unknown options {', '.join(unknown)}; known are {known}")
        self._options = options
        if isinstance(self.fields, str) or isinstance(self.file_extensions, str):
            raise OptionError("fields and file_extensions are lists of names, not one string")
        self.file_extensions = dotted(self.file_extensions, "file_extensions")
        self._limit = None if self.max_batch_bytes is None else parse_size(self.max_batch_bytes, "max_batch_bytes")
        # checked now, though no file has been looked for yet
        group_files([], self.files_per_partition, self.blocksize)
        self._target = resolve_schema(self.schema, self.schema_overrides)

    @abstractmethod
    def read_files(self, files: Sequence[InputFile]) -> Iterable[tuple[str, Iterable[pa.Table]]]:
        """URI and tables of whole samples, at most ``self._limit`` bytes each, of each file of one partition."""

    def partitions(self) -> list[list[InputFile]]:
        """The files, grouped.

        Raises:
            StorageError: a path is missing or unreadable, or a glob or folder is empty.
        """
        files = find_files(self.file_paths, self.file_extensions, self._storage_options)
        return group_files(files, self.files_per_partition, self.blocksize)

    def __iter__(self) -> Iterator[InterleavedBatch]:
        """The batches, in the order of the files.

        Raises:
            StorageError: a file is missing or unreadable.
            ShardError: a file is not what its ending says, is damaged as a whole, or does not fit the schema asked for.
        """
        return prefetch(self._batches())

    def _batches(self) -> Iterator[InterleavedBatch]:
        for files in self.partitions():
            for table, sources in join_files(self.read_files(files), self._limit):
                yield InterleavedBatch(align_shard(table, self._target, ", ".join(sources)), sources)


def warn_absent(absent: Iterable[str], uris: Sequence[str], known: Iterable[str]) -> None:
    """Log a warning about columns that options name and no file of a partition has, with those that they have."""
    logger.warning(
        "%s: no document or column is named %s; check fields, per_image_fields and per_text_fields. There are %s",
        ", ".join(uris),
        ", ".join(sorted(absent)),
        ", ".join(sorted(known)) or "none",
    )


def align_shard(table: pa.Table, target: pa.Schema | None, shard: str) -> pa.Table:
    """``table`` aligned to ``target``, or only reconciled where that is None.

    Raises:
        ShardError: a value does not fit its type, or is null where it may not be; the message begins with ``shard``.
    """
    try:
        return align_or_reconcile(table, target)
    except (ShardError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ShardError(f"{shard}: {error}") from error
