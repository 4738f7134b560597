"""The documents of any tar or interleaved Parquet file, which need not belong to a project."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from interleaved_assets.io.fill import materialize_parts
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.storage import StorageOptions, folders_of
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.model.columns import REQUIRED_COLUMNS
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.reporting.documents.choice import Choice, NothingChosen, check_choice, choose_documents
from interleaved_assets.reporting.documents.document import Evidence, build_documents
from interleaved_assets.reporting.documents.pages import (
    BATCH_BYTES,
    PREVIEWS,
    DocumentPage,
    previews_of,
    rows_of,
    thumbnails_of,
)
from interleaved_assets.reporting.facts import ImageKey
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.scoring.options import THUMBNAIL_COLUMN
from interleaved_assets.scoring.schema import scores_schema
from interleaved_assets.scoring.score import score_images
from interleaved_assets.scoring.settings import ScoringSettings
from interleaved_assets.selection.settings import SelectionSettings

SCORED_WITH: Final = ScoringSettings(scorers=("sharpness", "sharpness_256", "qr", "thumbnail"))
"""What is measured of the images: scores that need no model."""


def file_documents(
    uri: str,
    choice: Choice,
    *,
    storage_options: StorageOptions = None,
    tar_options: Mapping[str, Any] | None = None,
) -> DocumentPage:
    """Documents of a tar, or of interleaved Parquet by its ending; their images are decoded, for pictures and scores.

    ``tar_options`` are further arguments of :func:`~interleaved_assets.io.tar.reader.read_tar_shard`.
    """
    if choice.reasons:
        raise NothingChosen(f"{uri}: a file has no ledger of dropped rows: give the key of a shard to choose by reason")
    sample_ids: dict[str, None] = {}
    for table in _tables(uri, storage_options, tar_options or {}, keys_only=True):
        sample_ids.update(dict.fromkeys(table["sample_id"].to_pylist()))
    check_choice(choice, sample_ids, (), uri)
    chosen = choose_documents(list(sample_ids), {}, choice)
    pictures: dict[ImageKey, bytes] = {}
    rows, scores = [INTERLEAVED_SCHEMA.empty_table()], [scores_schema(SCORED_WITH).empty_table()]
    for table in rows_of(chosen.sample_ids, _tables(uri, storage_options, tar_options or {})):
        # rows that name their bytes by a locator get them, of the chosen documents alone
        for part in materialize_parts(
            table, BATCH_BYTES, storage_options=storage_options, allowed_roots=folders_of([uri])
        ):
            scores.append(score_images(part, SCORED_WITH))
            pictures |= thumbnails_of(scores[-1], chosen.sample_ids)
            if len(pictures) <= PREVIEWS:
                pictures |= previews_of(part)
            rows.append(part.drop_columns(["binary_content"]))
    measured = pa.concat_tables(scores).drop_columns([THUMBNAIL_COLUMN])
    # a file is judged by no project's bounds
    measures = [replace(measure, minimum=None, maximum=None) for measure in measures_of(SelectionSettings())]
    shown = pa.concat_tables(rows, promote_options="permissive")
    return DocumentPage(
        uri, build_documents(chosen.sample_ids, shown, pictures, Evidence(measures, measured)), chosen.how
    )


def _tables(
    uri: str, options: StorageOptions, tar_options: Mapping[str, Any], *, keys_only: bool = False
) -> Iterator[pa.Table]:
    if uri.lower().endswith(".parquet"):
        columns = REQUIRED_COLUMNS if keys_only else None
        yield from read_parquet_shard(uri, columns=columns, max_batch_bytes=BATCH_BYTES, storage_options=options)
    else:
        yield from read_tar_shard(uri, max_batch_bytes=BATCH_BYTES, storage_options=options, **tar_options)
