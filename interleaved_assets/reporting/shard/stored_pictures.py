"""The stored pictures of a shard: contact sheet, dropped rows, and a page with its documents."""

import hashlib
import json
import re
from contextlib import suppress
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from interleaved_assets.io.storage import atomic_output, read_small
from interleaved_assets.model.errors import describe
from interleaved_assets.model.shown import cut_text
from interleaved_assets.pipeline.lineage.contents import dropped_contents, row_contents, row_keys
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages.dag import OUTPUTS
from interleaved_assets.pipeline.stages.names import FILTERED
from interleaved_assets.pipeline.stages.outputs import read_ledgers
from interleaved_assets.reporting.documents.choice import Choice
from interleaved_assets.reporting.documents.html import documents_html
from interleaved_assets.reporting.documents.pages import shard_documents
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.reporting.figures.drops import choose_drops, reason_text, short_id
from interleaved_assets.reporting.figures.facts import ImageKey
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.reporting.figures.pictures import shown_thumbnails
from interleaved_assets.reporting.shard.report import plots_url, shard_report
from interleaved_assets.reporting.shard.tiles import choose_pictures, compared_texts, tiles_of
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.settings import Settings

FIRST_DROPS: Final = 5
"""Most dropped rows in the table of a shard."""
_CONTENT_LENGTH: Final = 60
_PAGE_DROPPED, _PAGE_KEPT = 16, 8  # most pictures of the contact sheet; about a dozen fit
_VERSION: Final = 7  # version of the drawing: a change draws the pictures of unchanged shards again


class StoredPictures(BaseModel):
    """The pictures, the dropped rows and the page of a shard at one stage, as stored."""

    version: str
    """Version that changes with the output, its inputs and the settings of the pictures."""
    report: str
    """Markdown with its pictures inside; empty if there is none."""
    page: bool
    """True if there is a page with the shard's documents."""
    drops: list[dict[str, Any]]
    """The first dropped rows, as lines of a table."""


def store_pictures(record: Record, settings: Settings) -> StoredPictures | None:
    """Return the first dropped rows of a shard at a stage, and after selection its pictures and page.

    They are made once for each output, its inputs and set of thresholds, and stored beside the output. For a shard that
    has not changed, making them would take longer than everything else. ``run.pictures = false`` leaves out the
    pictures and the page. The result is None if there is nothing to show.
    """
    has_pictures = settings.run.pictures and record.stage == FILTERED
    if not (has_pictures or record.dropped):
        return None
    paths = settings.storage.shard(record.shard)
    uri = paths.pictures(record.stage)
    chosen = f"{has_pictures} {settings.pages!r}"
    # another score is shown beside the same rows: it changes an input and no row
    made = f"{record.data_version} {json.dumps(record.inputs, sort_keys=True)}"
    text = f"{_VERSION} {made} {selection_version(settings.selection)} {chosen}"
    version = hashlib.sha256(text.encode()).hexdigest()
    with suppress(ValidationError):  # missing or damaged pictures are made again
        stored = StoredPictures.model_validate_json(read_small(uri, paths.options) or b"")
        if stored.version == version:
            return stored
    report, page = selection_pictures(record.shard, settings) if has_pictures else ("", "")
    if page:
        with atomic_output(paths.page(), paths.options) as out:
            out.write(page.encode())
    drops = _first_drops(record, settings) if record.dropped else []
    stored = StoredPictures(version=version, report=report, page=bool(page), drops=drops)
    with atomic_output(uri, paths.options) as out:
        out.write(json.dumps(stored.model_dump()).encode())
    return stored


def draw_pictures(outcome: StageOutcome, settings: Settings) -> StoredPictures | str | None:
    """Return :func:`store_pictures` of a shard that was taken through a stage; or its error, described.

    An error while drawing does not fail the shard.
    """
    try:
        return store_pictures(outcome.record, settings)
    except Exception as error:  # noqa: BLE001  any error concerns only the pictures of this shard, and is shown
        return describe(error)


def _first_drops(record: Record, settings: Settings) -> list[dict[str, Any]]:
    """Return a few rows of the ledger of a stage, with their contents."""
    paths = settings.storage.shard(record.shard)
    drops = choose_drops(read_ledgers(paths, [record.stage]), FIRST_DROPS)
    contents = {} if OUTPUTS[record.stage].hides_dropped_texts else dropped_contents(drops, paths)
    measures = measures_of(settings.selection)
    return [
        {
            "why": reason_text(row, measures),
            "sample": short_id(row["sample_id"]),
            "position": row["position"],
            "modality": row["modality"],
            "content or detail": _with_short_words(cut_text(contents.get(key) or row["detail"] or "", _CONTENT_LENGTH)),
        }
        for key, row in zip(row_keys(drops), drops.to_pylist(), strict=True)
    ]


def _with_short_words(content: str) -> str:
    """Shorten long words, such as names of files: the table in Dagster does not break them, and is cut instead."""
    return re.sub(r"[!-~]+", lambda word: short_id(word[0]), content)


def selection_pictures(key: str, settings: Settings) -> tuple[str, str]:
    """Return counts, drops, histograms of every score and the contact sheet as Markdown, and the page, if any, as HTML.

    The asset after the scores has all pictures of a shard, so that the event log holds them once.
    """
    paths = settings.storage.shard(key)
    facts = shard_facts(key, settings)
    measures = measures_of(settings.selection)
    dropped, kept, nearest = list[ImageKey](), list[ImageKey](), {}
    if facts.scores is not None and THUMBNAIL_COLUMN in facts.scores.column_names:
        dropped, kept = choose_pictures(facts.scores, facts.ledger, _PAGE_DROPPED, _PAGE_KEPT)
        nearest = compared_texts(facts.scores, [*dropped, *kept])
    contents = row_contents(list(nearest.values()), paths.output(facts.rows_stage), paths)
    texts = {image: contents[row] for image, row in nearest.items() if row in contents}
    pictures = shown_thumbnails([*dropped, *kept], facts.scores, paths, settings.storage)
    tiles = [tiles_of(facts, images, measures, texts, pictures) if images else [] for images in (dropped, kept)]
    page = ""
    if settings.pages.enabled:
        documents = shard_documents(key, settings, Choice(settings.pages.max_documents), facts=facts)
        page = documents_html(documents, plots_url(facts, measures))
    return shard_report(facts, measures, *tiles), page
