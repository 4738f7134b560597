"""Pictures of a shard in the UI, as metadata of a materialization: histograms, drop reasons, contact sheets."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

from interleaved_assets.io.storage import atomic_output, read_small
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stages.outputs import read_scores_of
from interleaved_assets.reporting.collect import shard_facts
from interleaved_assets.reporting.facts import ImageKey, ShardFacts
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.reporting.shard_report import choose_pictures, score_histograms, shard_report
from interleaved_assets.scoring.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.settings import Settings

Pieces = Mapping[str, bytes | str]
Draw = Callable[[str, Settings], Pieces]
"""Draws the pictures of a shard from the stored outputs of its stages."""


def shard_pictures(record: Record, settings: Settings, draw: Draw) -> dict[str, dg.MetadataValue]:
    """The pictures of a shard by ``draw``: drawn once for each output and set of thresholds, stored beside the output.

    For a shard that has not changed, drawing would take longer than everything else.
    """
    uri = settings.storage.shard(record.shard).pictures(record.stage)
    version = hashlib.sha256(f"{record.data_version} {selection_version(settings.selection)}".encode()).hexdigest()
    kept = _kept(uri, settings)
    if kept.get("version") != version:
        pieces = {name: _as_markdown(name, piece) for name, piece in draw(record.shard, settings).items()}
        kept = {"version": version, "pieces": pieces}
        with atomic_output(uri, settings.storage.options) as out:
            out.write(json.dumps(kept).encode())
    return {name: dg.MetadataValue.md(text) for name, text in kept["pieces"].items()}


def score_pictures(stage: str) -> Draw:
    """Draws histograms of the scores of ``stage``, with thresholds.

    The scores of other stages may not be there yet: the scoring stages do not depend on one another.
    """

    def draw(key: str, settings: Settings) -> Pieces:
        paths = settings.storage.shard(key)
        facts = ShardFacts(key, scores=read_scores_of(stage, paths))
        return score_histograms(facts, measures_of(settings.selection, unbounded=True))

    return draw


def selection_pictures(key: str, settings: Settings) -> Pieces:
    """Kept and dropped rows of a shard by reason, histograms, contact sheets of kept and dropped images."""
    facts = shard_facts(key, settings, thumbnails=True)
    pictures: dict[ImageKey, bytes | None] = {}
    if facts.scores is not None and THUMBNAIL_COLUMN in facts.scores.column_names:
        chosen = choose_pictures(facts.scores, facts.ledger)
        thumbnails = _thumbnails(facts.scores)
        pictures = {image: thumbnails.get(image) for image in (*chosen.dropped, *chosen.kept)}
    return shard_report(facts, measures_of(settings.selection), pictures)


def _kept(uri: str, settings: Settings) -> dict[str, Any]:
    """The pictures stored before, in one read: the whole cost of pictures for a shard that has not changed.

    Empty where the file is missing or damaged: the pictures are drawn again.
    """
    content = read_small(uri, settings.storage.options)
    try:
        kept = json.loads(content or b"")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) and isinstance(kept.get("pieces"), dict) else {}


def _as_markdown(name: str, piece: bytes | str) -> str:
    """A piece of a report as Markdown; a picture becomes a data URL."""
    if isinstance(piece, str):
        return piece
    kind = "png" if piece.startswith(b"\x89PNG") else "jpeg"
    return f"![{name}](data:image/{kind};base64,{base64.b64encode(piece).decode()})"


def _thumbnails(scores: pa.Table) -> Mapping[ImageKey, bytes | None]:
    columns = (scores[name].to_pylist() for name in ("sample_id", "position", THUMBNAIL_COLUMN))
    return {ImageKey(sample_id, position): data for sample_id, position, data in zip(*columns, strict=True)}
