"""What the UI shows of a shard at a glance: histograms, reasons, contact sheets, as metadata of a materialization."""

import base64
from collections.abc import Mapping

import dagster as dg
import pyarrow as pa

from interleaved_assets.reporting.collect import shard_facts
from interleaved_assets.reporting.facts import ImageKey
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.reporting.shard_report import choose_pictures, shard_report
from interleaved_assets.scoring.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.settings import Settings


def score_pictures(key: str, settings: Settings) -> dict[str, dg.MetadataValue]:
    """Histograms of one shard's scores, thresholds drawn in."""
    facts = shard_facts(key, settings)
    pieces = shard_report(facts, measures_of(settings.selection, unbounded=True))
    return {name: as_metadata(name, piece) for name, piece in pieces.items() if name.startswith("histogram_")}


def selection_pictures(key: str, settings: Settings) -> dict[str, dg.MetadataValue]:
    """What was kept and dropped of one shard and why, with contact sheets of both."""
    facts = shard_facts(key, settings, thumbnails=True)
    pictures: dict[ImageKey, bytes | None] = {}
    if facts.scores is not None and THUMBNAIL_COLUMN in facts.scores.column_names:
        chosen = choose_pictures(facts.scores, facts.ledger)
        thumbnails = _thumbnails(facts.scores)
        pictures = {image: thumbnails.get(image) for image in (*chosen.dropped, *chosen.kept)}
    pieces = shard_report(facts, measures_of(settings.selection), pictures)
    return {name: as_metadata(name, piece) for name, piece in pieces.items()}


def as_metadata(name: str, piece: bytes | str) -> dg.MetadataValue:
    """A piece of a report: Markdown as it is, a picture inlined."""
    if isinstance(piece, str):
        return dg.MetadataValue.md(piece)
    kind = "png" if piece.startswith(b"\x89PNG") else "jpeg"
    return dg.MetadataValue.md(f"![{name}](data:image/{kind};base64,{base64.b64encode(piece).decode()})")


def _thumbnails(scores: pa.Table) -> Mapping[ImageKey, bytes | None]:
    columns = (scores[name].to_pylist() for name in ("sample_id", "position", THUMBNAIL_COLUMN))
    return {ImageKey(sample_id, position): data for sample_id, position, data in zip(*columns, strict=True)}
