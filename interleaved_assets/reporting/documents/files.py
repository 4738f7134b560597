"""The documents of any tar or interleaved Parquet file, which need not belong to a project."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from interleaved_assets.io.formats.shard import is_parquet
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.rows.fill import materialize_parts
from interleaved_assets.io.storage import folders_of
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.model.columns import REQUIRED_COLUMNS
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.files.inputs import storage_options
from interleaved_assets.pipeline.run.publishable import ContentCounter, other_layout
from interleaved_assets.reporting.documents.choice import Choice, NothingChosen, check_choice, choose_documents
from interleaved_assets.reporting.documents.document import build_documents
from interleaved_assets.reporting.documents.pages import (
    BATCH_BYTES,
    PREVIEWS,
    DocumentPage,
    previews_of,
    rows_of,
    thumbnails_of,
)
from interleaved_assets.reporting.figures.facts import ImageKey
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.scoring.images.options import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.schema import scores_schema
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import Settings

SCORED_WITH: Final = ScoringSettings(scorers=("sharpness", "sharpness_256", "qr", "thumbnail"))
"""Settings of the scores that are computed for the images: those that need no model."""


def file_documents(uri: str, choice: Choice, settings: Settings) -> DocumentPage:
    """Return documents of a tar or of interleaved Parquet. Their images are decoded, for pictures and scores.

    ``settings`` have the layout of tars, limits and options of storages.
    """
    if choice.reasons:
        raise NothingChosen(f"{uri}: a file has no ledger of dropped rows: give the key of a shard to choose by reason")
    sample_ids: dict[str, None] = {}
    content = ContentCounter()
    tables = _tables(uri, settings, keys_only=True)
    is_tar = not is_parquet(uri, storage_options(uri, settings.storage))
    for table in content.counting(tables) if is_tar else tables:
        sample_ids.update(dict.fromkeys(table["sample_id"].to_pylist()))
    layout = other_layout(len(sample_ids), content.counted, settings) if is_tar else []
    check_choice(choice, sample_ids, (), uri)
    chosen = choose_documents(list(sample_ids), {}, choice)
    pictures: dict[ImageKey, bytes] = {}
    rows, scores = [INTERLEAVED_SCHEMA.empty_table()], [scores_schema(SCORED_WITH).empty_table()]
    for table in rows_of(chosen.sample_ids, _tables(uri, settings)):
        # bytes that rows name by a locator are read for the chosen documents only
        for part in materialize_parts(
            table,
            BATCH_BYTES,
            storage_options=storage_options(uri, settings.storage),
            allowed_roots=[*folders_of([uri]), settings.storage.raw_root],
            limits=settings.limits.for_tars(),
        ):
            scores.append(score_images(part, SCORED_WITH))
            pictures |= thumbnails_of(scores[-1], chosen.sample_ids)
            if len(pictures) <= PREVIEWS:
                pictures |= previews_of(part)
            rows.append(part.drop_columns(["binary_content"]))
    measured = pa.concat_tables(scores).drop_columns([THUMBNAIL_COLUMN])
    # the bounds of no project apply to a file
    measures = [replace(measure, minimum=None, maximum=None) for measure in measures_of(SelectionSettings())]
    shown = pa.concat_tables(rows, promote_options="permissive")
    documents = build_documents(chosen.sample_ids, shown, pictures, measures, scores=measured)
    return DocumentPage(uri, documents, chosen.how, layout=layout)


def _tables(uri: str, settings: Settings, *, keys_only: bool = False) -> Iterator[pa.Table]:
    options = storage_options(uri, settings.storage)
    if is_parquet(uri, options):
        columns = REQUIRED_COLUMNS if keys_only else None
        return read_parquet_shard(uri, columns=columns, max_batch_bytes=BATCH_BYTES, storage_options=options)
    return read_tar_shard(
        uri,
        layout=settings.reading.for_tars(),
        max_batch_bytes=BATCH_BYTES,
        storage_options=options,
        **settings.limits.for_tars()._asdict(),
    )
