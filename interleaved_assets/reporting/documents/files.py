"""The documents of any shard file, which need not belong to a project."""

from dataclasses import replace
from typing import Final

import pyarrow as pa

from interleaved_assets.io.formats.shard import format_of
from interleaved_assets.model.columns import REQUIRED_COLUMNS
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.shown import without_credentials
from interleaved_assets.pipeline.run.publishable import ContentCounter, other_layout
from interleaved_assets.pipeline.stages.normalized import read_options
from interleaved_assets.reporting.documents.choice import Choice, NothingChosen, check_choice, choose_documents
from interleaved_assets.reporting.documents.document import build_documents, rows_of_samples
from interleaved_assets.reporting.documents.pages import PREVIEWS, DocumentPage, previews_of
from interleaved_assets.reporting.figures.facts import ImageKey, thumbnails_in
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.reporting.figures.pictures import BATCH_BYTES
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.registry import scores_schema
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import Settings
from interleaved_assets.settings.template import RECOMMENDED

SCORED_WITH: Final = ScoringSettings(scorers=RECOMMENDED["scoring.scorers"])
"""Settings of the scores that are computed for the images: those of a new settings file, which need no model."""


def file_documents(uri: str, choice: Choice, settings: Settings) -> DocumentPage:
    """Return documents of a shard file. Their images are decoded, for pictures and scores.

    ``settings`` have the layout of tars, limits and options of storages.
    """
    if choice.reasons:
        raise NothingChosen(f"{uri}: a file has no ledger of dropped rows: give the key of a shard to choose by reason")
    sample_ids: dict[str, None] = {}
    content = ContentCounter()
    options = read_options(uri, settings)._replace(
        max_batch_bytes=BATCH_BYTES, materialize=False, accept_incomplete=True
    )
    form = format_of(uri, options.storage_options)
    tables = form.tables(uri, options._replace(columns=REQUIRED_COLUMNS))
    for table in content.counting(tables) if form.has_layout else tables:
        sample_ids.update(dict.fromkeys(table["sample_id"].to_pylist()))
    layout = other_layout(len(sample_ids), content.counted, form, settings) if form.has_layout else []
    check_choice(choice, sample_ids, (), uri)
    chosen = choose_documents(list(sample_ids), {}, choice)
    pictures: dict[ImageKey, bytes] = {}
    rows, scores = [INTERLEAVED_SCHEMA.empty_table()], [scores_schema(SCORED_WITH).empty_table()]
    for table in form.tables(uri, options):
        # bytes that rows name by a locator are read for the chosen documents only
        for part in options.filled(rows_of_samples(table, chosen.sample_ids), uri):
            scores.append(score_images(part, SCORED_WITH))
            pictures |= thumbnails_in(scores[-1])
            if len(pictures) <= PREVIEWS:
                pictures |= previews_of(part)
            rows.append(part.drop_columns(["binary_content"]))
    measured = pa.concat_tables(scores).drop_columns([THUMBNAIL_COLUMN])
    # the bounds of no project apply to a file
    measures = [replace(measure, minimum=None, maximum=None) for measure in measures_of(SelectionSettings())]
    shown = pa.concat_tables(rows, promote_options="permissive")
    documents = build_documents(chosen.sample_ids, shown, pictures, measures, scores=measured)
    return DocumentPage(without_credentials(uri), documents, chosen.how, layout=layout)
