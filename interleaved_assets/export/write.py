"""The function that writes the images of one batch: the image export for scripts, without Dagster."""

import hashlib
import itertools
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from interleaved_assets.export.image_rows import DocumentFields, image_rows, text_parts
from interleaved_assets.export.names import scope_of, set_name
from interleaved_assets.export.settings import ExportSettings
from interleaved_assets.export.tars import ImageSet, image_tars
from interleaved_assets.io.storage import StorageOptions, as_uri
from interleaved_assets.model.batch import InterleavedBatch, check_batch
from interleaved_assets.model.casting import empty_table
from interleaved_assets.model.cells import cell_values
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA, align_or_reconcile
from interleaved_assets.scoring.images.size import DEFAULT_MAX_PIXELS
from interleaved_assets.selection.positions import match_scores


class WrittenImages(NamedTuple):
    """The files that :func:`write_images` has written, with their tables."""

    tars: list[str]
    tables: list[str]
    """The Parquet file of each tar, in the same order."""
    images: pa.Table
    """The rows of all tables, without the bytes of the images."""
    ledger: pa.Table
    """The images that failed (``LEDGER_SCHEMA``), with the error as the reason."""


def write_images(
    batch: InterleavedBatch,
    output_dir: str,
    settings: ExportSettings | None = None,
    *,
    scores: pa.Table | None = None,
    storage_options: StorageOptions = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> WrittenImages:
    """Write the images of ``batch`` to ``images-<hash>-000000.tar`` and so on, each with a Parquet file beside it.

    A tar has, for each image, its bytes as ``<image id>.<ending>`` and its row of the Parquet file as ``<image
    id>.json``. The row has ``image_id``, ``tar_file``, ``member``, ``original_path``, ``source_ref``, ``sample_id``,
    ``position``, ``original_position``, ``width``, ``height``, ``content_type``, ``text_before`` and ``text_after``
    (the nearest texts of the sample), the scores, and the document's own fields: the passthrough columns, with the
    value of the image's own row, or else of its sample's metadata row. The JSON has the same except ``tar_file`` and
    ``member``. In JSON a number that is not finite is null, bytes are Base64, and a date or any other value that JSON
    has no type for is text. Images without bytes fail: call ``materialize`` before.

    Args:
        batch: the images that are written, with the texts of their samples.
        output_dir: folder or URL. Files of another name in it stay.
        settings: by default 1,000 images a tar, their original bytes, and a Parquet file without them. ``enabled`` is
            ignored.
        scores: a score table with ``sample_id`` and ``position``, joined by both; bytes and vectors in it are left out.
        storage_options: fsspec options.
        max_pixels: limit for width x height of an image that is written anew.

    Raises:
        OptionError: the batch is not valid, or ``scores`` lacks a key column.
        StorageError: a file cannot be written; the files before it stay.
    """
    check_batch(batch, "write_images")
    settings = settings or ExportSettings()
    rows = align_or_reconcile(batch.to_pyarrow(), None)
    if rows.num_rows and (problems := InterleavedBatch(rows).problems()):
        raise OptionError(f"cannot export the images: {'; '.join(problems)}")
    for field in INTERLEAVED_SCHEMA:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    images, fields = image_rows(rows), DocumentFields(rows)
    parts = list(text_parts(images, fields))
    matched = images.select(["sample_id", "position"])
    if scores is not None:
        found = match_scores(images, scores)
        added = scores.drop_columns(["sample_id", "position"]).take(pa.array(found, mask=found < 0))
        for field in added.schema:
            matched = matched.append_column(field, added[field.name])
    content = _content_hash(images, matched, (fields.part(part) for part in parts))
    files = "\n".join(batch.source_files)
    name = set_name(f"{files}\n{content}\n{settings.version()}" if settings.deterministic_name else uuid.uuid4().hex)
    place = ImageSet(as_uri(output_dir, "output_dir"), name, scope_of(files or content))
    with image_tars(
        place,
        matched.schema,
        settings,
        fields=fields.schema,
        storage_options=storage_options,
        max_pixels=max_pixels,
    ) as tars:
        written = [tars.write(images[part], matched[part], fields.part(part)) for part in parts]
    return WrittenImages(
        [chunk.tar.uri for chunk in tars.chunks],
        [chunk.table.uri for chunk in tars.chunks],
        pa.concat_tables([empty_table(tars.schema), *(table for table, _ in written)]),
        pa.concat_tables([empty_ledger(), *(ledger for _, ledger in written)]),
    )


def _content_hash(images: pa.Table, scores: pa.Table, fields: Iterable[pa.Table]) -> str:
    """Return the SHA-256 of all cells, which does not depend on the chunks of the tables."""
    digest = hashlib.sha256()
    for table in itertools.chain((images, scores), fields):
        for name in table.column_names:
            digest.update(f"{name}\n".encode())
            if name == "binary_content":
                for value in table[name]:
                    buffer = value.as_buffer()
                    digest.update(b"-" if buffer is None else f"{buffer.size}:".encode())
                    digest.update(b"" if buffer is None else buffer)
            elif pa.types.is_dictionary(table.schema.field(name).type):
                # computed like the hash below, but without a list in which long texts are repeated
                digest.update(b"[")
                for row, value in enumerate(table[name]):
                    digest.update(f"{', ' if row else ''}{value.as_py()!r}".encode())
                digest.update(b"]")
            else:
                digest.update(repr(cell_values(table[name])).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
