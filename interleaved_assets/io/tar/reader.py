"""Reader of tars of interleaved documents: MINT-1T's, and those that this package writes."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from os import PathLike
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from interleaved_assets.io.archive.source import TarSource, open_tar
from interleaved_assets.io.rows.batches import parts_within, split_samples
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.rows.fetch import Access
from interleaved_assets.io.rows.fill import materialize_parts
from interleaved_assets.io.rows.raw_versions import is_by_reference
from interleaved_assets.io.rows.reader import ShardReader, warn_absent
from interleaved_assets.io.storage import InputFile, StorageOptions, as_uri, folders_of
from interleaved_assets.io.storage.limits import LIMITS, TarLimits, check_limits, limits_of
from interleaved_assets.io.tar.estimates import null_bytes
from interleaved_assets.io.tar.groups import detected_layout
from interleaved_assets.io.tar.layout import TAR_ENDINGS, UNREFERENCED_MEMBERS, Layout, ShardLayout
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.samples import (
    KEPT_BYTES,
    KEPT_TAGS,
    Sample,
    find_samples,
    fit_samples,
    sample_document,
)
from interleaved_assets.io.tar.tar_rows import UNREFERENCED_TYPE, TarRows
from interleaved_assets.model.casting import empty_table
from interleaved_assets.model.columns import BINARY_SIZE, RESERVED_COLUMNS
from interleaved_assets.model.errors import IncompleteShard
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

# Columns are built from at most this many bytes at a time, so that no offset of 32 bits overflows.
_STEP_BYTES: Final = 2**29


def read_tar_shard(
    uri: str | PathLike[str],
    *,
    layout: ShardLayout | None = None,
    max_batch_bytes: int | None = None,
    materialize: bool = False,
    by_reference: bool = False,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    limits: TarLimits = LIMITS,
    notes: Counter[str] | None = None,
    accept_incomplete: bool = True,
) -> Iterator[pa.Table]:
    """Yield tables of whole samples from one tar, in its order; all of them have the same schema.

    The tar is read twice: once for its headers and documents, which determine the schema, and once for the images. An
    error of a row is its ``materialize_error``. Data that belong to no row are kept in the passthrough columns that
    ``layout.py`` names. A tar without samples gives no table.

    Args:
        uri: a path or a URL; the tar may be compressed with gzip, bzip2 or xz.
        layout: the names of the parts of a document; MINT-1T's by default.
        max_batch_bytes: a table is cut before the sample that would exceed it; None gives one table.
        materialize: put the bytes of images into the rows. Else rows have their locators only, and a remote tar is not
            fetched as a whole; then frames of a TIFF that no document names are not found.
        by_reference: with ``materialize``, images that the tar holds uncompressed get :data:`BINARY_SIZE` instead of
            bytes, which :func:`~interleaved_assets.io.rows.fill.fill_referenced` reads from the tar later. Images
            of a compressed tar are copied, and so are those of a tar that names files elsewhere.
        storage_options: fsspec options.
        allowed_roots: folders and URLs below which locators may point to images that the tar names but does not hold;
            by default the tar's own folder.
        limits: limits for a member, a document, a sample, all documents together and a compressed tar.
        notes: counts of irregularities that are no row's error, by kind.
        accept_incomplete: read a tar that is cut or damaged, has no end mark, or has data after it, as far as possible.

    Raises:
        StorageError: the tar is missing or unreadable.
        ShardError: it is not a tar, or damaged so that no sample can be read.
        IncompleteShard: members may be missing, and ``accept_incomplete`` is False.
        OptionError: a limit is not a whole number from 1.
    """
    options = ReadOptions(
        layout=layout or ShardLayout(),
        max_batch_bytes=max_batch_bytes,
        materialize=materialize,
        storage_options=storage_options,
        allowed_roots=allowed_roots,
        limits=limits,
        accept_incomplete=accept_incomplete,
        notes=notes,
        by_reference=by_reference,
    )
    return _tar_tables(as_uri(uri, "uri"), options)


class ReadOptions(NamedTuple):
    """Options of reading a shard file; see :func:`read_tar_shard`."""

    layout: ShardLayout = ShardLayout()
    max_batch_bytes: int | None = None
    materialize: bool = False
    storage_options: StorageOptions = None
    allowed_roots: Sequence[str] | None = None
    limits: TarLimits = LIMITS
    accept_incomplete: bool = True
    notes: Counter[str] | None = None
    by_reference: bool = False
    columns: Collection[str] | None = None
    """Columns that the caller needs; a format that cannot leave out others gives all."""
    sections: Mapping[str, Any] = MappingProxyType({})
    """The settings of formats that have their own, by the name of their section."""

    def check_whole(self, uri: str, shortfall: str | None, what: str) -> None:
        """Raise IncompleteShard if a file has a ``shortfall``, unless :attr:`accept_incomplete` takes the rest."""
        if shortfall is not None and not self.accept_incomplete:
            raise IncompleteShard(
                f"{uri}: truncated_shard: {shortfall}. Fetch or write it again, or set publish.accept_incomplete to "
                f"take the {what} that can be read."
            )

    def filled(self, table: pa.Table, uri: str) -> Iterator[pa.Table]:
        """Return :func:`.materialize_parts` of rows of the file at ``uri``."""
        roots = folders_of([uri]) if self.allowed_roots is None else self.allowed_roots
        return materialize_parts(table, self.max_batch_bytes, Access(self.storage_options, roots, self.limits))


def read_tar(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the tables of :func:`read_tar_shard`, and one without rows for a tar without samples."""
    tables = _tar_tables(uri, options)
    yield next(tables, INTERLEAVED_SCHEMA.empty_table())
    yield from tables


def tar_shortfall(uri: str, options: ReadOptions) -> str | None:
    """Return what shows that members of a tar may be missing, None if nothing does."""
    with open_tar(uri, options.storage_options, by_ranges=True, limits=options.limits) as source:
        return source.index.shortfall


def _tar_tables(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    check_limits(options.limits)
    with _opened([uri], options, ColumnTypes(options.layout.fields)) as ((shard,), schema):
        tables = _tables(shard, schema, options)
        if options.max_batch_bytes is not None:
            yield from tables
        elif parts := list(tables):
            yield pa.concat_tables(parts)


@dataclass
class InterleavedWebdatasetReader(ShardReader):
    """Reader of tars of interleaved documents.

    Its options are those of :class:`ShardReader` and :class:`ShardLayout`, and these.

    Attributes:
        read_kwargs: also the limits of :class:`TarLimits`, in bytes or as text such as ``"1GiB"``.
        materialize_on_read: put the bytes of images into the rows; else only their locators.
        allowed_roots: see :func:`read_tar_shard`.
        notes: counts of irregularities so far that are no row's error, by kind.

    Files of one partition have the same columns, and are open at the same time.
    """

    file_extensions: Sequence[str] = TAR_ENDINGS
    sample_id_field: str | None = None
    image_extensions: Sequence[str] = IMAGE_EXTENSIONS
    json_extensions: Sequence[str] = (".json",)
    texts_field: str = "texts"
    images_field: str = "images"
    image_member_field: str | None = None
    per_image_fields: Sequence[str] = ("image_metadata",)
    per_text_fields: Sequence[str] = ()
    materialize_on_read: bool = False
    allowed_roots: Sequence[str] | None = None
    layout: Layout = "interleaved"
    notes: Counter[str] = field(default_factory=Counter, init=False)

    read_options: ClassVar[frozenset[str]] = frozenset(TarLimits._fields)
    decodes_in_python: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._limits = limits_of(self._options)
        self._layout = ShardLayout(**{option.name: getattr(self, option.name) for option in fields(ShardLayout)})

    def read_files(self, files: Sequence[InputFile]) -> Iterable[tuple[str, Iterable[pa.Table]]]:
        """Implement :meth:`ShardReader.read_files`."""
        options = ReadOptions(
            layout=self._layout,
            max_batch_bytes=self._limit,
            materialize=self.materialize_on_read,
            storage_options=self._storage_options,
            allowed_roots=self.allowed_roots,
            limits=self._limits,
            notes=self.notes,
        )
        wished = {column.name: column.type for column in self._target or () if column.name not in RESERVED_COLUMNS}
        columns = ColumnTypes(self._layout.fields, wished)
        with _opened([file.uri for file in files], options, columns) as (shards, schema):
            for shard in shards:
                tables = _tables(shard, schema, options)
                yield shard.source.uri, tables if shard.samples else [empty_table(schema)]


class _OpenShard(NamedTuple):
    """An open tar, its samples, and its own layout."""

    source: TarSource
    samples: list[Sample]
    layout: ShardLayout


@contextmanager
def _opened(
    uris: Sequence[str], options: ReadOptions, columns: ColumnTypes
) -> Iterator[tuple[list[_OpenShard], pa.Schema]]:
    """Open the tars at ``uris``, find their samples, and derive the columns of their rows; count in the notes."""
    notes = Counter[str]() if options.notes is None else options.notes
    with ExitStack() as stack:
        shards: list[_OpenShard] = []
        for uri in uris:
            source = stack.enter_context(
                open_tar(uri, options.storage_options, by_ranges=not options.materialize, limits=options.limits)
            )
            options.check_whole(uri, source.index.shortfall, "samples")
            layout = options.layout
            if layout.layout == "detected":
                layout = detected_layout(source, layout)
            samples, noticed = find_samples(
                source,
                layout,
                columns,
                limits=options.limits,
                with_bytes=options.materialize,
                kept_bytes=KEPT_BYTES // len(uris),
                kept_tags=KEPT_TAGS // len(uris),
            )
            notes.update(noticed)
            shards.append(_OpenShard(source, samples, layout))
        samples = [sample for shard in shards for sample in shard.samples]
        if samples and (absent := options.layout.named_columns() - columns.seen):
            notes["absent_fields"] += len(absent)
            warn_absent(absent, uris, columns.seen)
        # the size of a row depends on the documents of all samples
        fit_samples(samples, options.limits, null_bytes(columns.schema()), with_bytes=options.materialize)
        if any(sample.leftovers for sample in samples):
            columns.state_schema(pa.schema([(UNREFERENCED_MEMBERS, UNREFERENCED_TYPE)]), ordered=False)
        schema = columns.schema()
        has_offsets = all(shard.source.has_offsets for shard in shards)
        if options.by_reference and has_offsets and BINARY_SIZE not in schema.names:
            schema = schema.append(pa.field(BINARY_SIZE, pa.uint64()))
        yield shards, schema


def _tables(shard: _OpenShard, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of whole samples, of at most ``options.max_batch_bytes`` unless a sample is larger."""
    samples = shard.samples
    row_bytes = null_bytes(schema)
    sizes = np.array(
        [sample.size + sample.rows * row_bytes for sample in samples], np.float64
    )  # a damaged header may exceed int64
    for part in parts_within(sizes, min(options.max_batch_bytes or _STEP_BYTES, _STEP_BYTES)):
        yield from _group_tables(shard._replace(samples=samples[part]), schema, options)


def _group_tables(shard: _OpenShard, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the rows of the samples of ``shard``.

    This is a separate generator, so that no reference to a group's data is left while the next group is read.
    """
    source, samples, layout = shard
    rows = TarRows(
        source,
        schema,
        with_bytes=options.materialize,
        by_reference=options.by_reference and is_by_reference(schema),
    )
    for sample in samples:
        document = sample.document
        if document is None:
            document = sample_document(source, layout, sample, options.limits)
        rows.add(sample, document)
    table, points_elsewhere = rows.table(), rows.points_elsewhere
    del rows  # it holds the bytes of images, which the table has copied
    for part in options.filled(table, source.uri) if options.materialize and points_elsewhere else [table]:
        # the sizes that samples were grouped by are rough
        yield from split_samples(part, options.max_batch_bytes)
