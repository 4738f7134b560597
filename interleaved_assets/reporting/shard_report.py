"""The report of one shard: histograms of its scores, drops by reason, contact sheets of dropped and kept images."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.ledger import SAMPLE_DROPPED, drop_reasons
from interleaved_assets.reporting import text
from interleaved_assets.reporting.chart import to_png
from interleaved_assets.reporting.contact_sheet import MAX_TILES, Tile, contact_sheet
from interleaved_assets.reporting.facts import ImageKey, ShardFacts
from interleaved_assets.reporting.measures import Measure
from interleaved_assets.reporting.plots import reasons_bar, score_histogram
from interleaved_assets.reporting.sketch import ScoreSketch

_SIZE_COLUMNS: Final = frozenset({"width", "height", "aspect_ratio"})

SHEET_BYTES: Final = 60_000
"""Largest contact sheet in bytes: each is stored with a materialization."""


class PictureChoice(NamedTuple):
    """The images that the contact sheets show."""

    dropped: list[ImageKey]
    kept: list[ImageKey]


def choose_pictures(scores: pa.Table, ledger: pa.Table | None, limit: int = MAX_TILES) -> PictureChoice:
    """Up to ``limit`` dropped and ``limit`` kept images for the contact sheets; only their bytes have to be fetched.

    Dropped images are taken from each reason in turn, so that rare reasons are shown; images dropped with their sample
    come last. Kept images are spread evenly over the shard.
    """
    by_reason: dict[str, list[ImageKey]] = defaultdict(list)
    gone: set[ImageKey] = set()
    if ledger is not None:
        images = ledger.filter(pc.equal(ledger["modality"], "image"))
        for key, reason in zip(_keys(images), images["reason"].to_pylist(), strict=True):
            by_reason[reason].append(key)
            gone.add(key)
    order = sorted(by_reason, key=lambda reason: (reason == SAMPLE_DROPPED, reason))
    dropped: list[ImageKey] = []
    for turn in range(max((len(keys) for keys in by_reason.values()), default=0)):
        dropped += [by_reason[reason][turn] for reason in order if turn < len(by_reason[reason])]
        if len(dropped) >= limit:
            break
    kept = [key for key in _keys(scores) if key not in gone]
    if len(kept) > limit:
        kept = [kept[index] for index in np.linspace(0, len(kept) - 1, limit).round().astype(int)]
    return PictureChoice(dropped[:limit], kept)


def shard_report(
    facts: ShardFacts,
    measures: Sequence[Measure],
    pictures: Mapping[ImageKey, bytes | None] | None = None,
    *,
    sheet_bytes: int = SHEET_BYTES,
) -> dict[str, bytes | str]:
    """The pieces of one shard's report, by name.

    Args:
        facts: counts, scores and ledger of the shard.
        measures: the scores to show and their bounds.
        pictures: bytes of the images named by :func:`choose_pictures`, None for one that could not be fetched; without
            this argument there are no contact sheets.
        sheet_bytes: size limit of each contact sheet.

    Returns:
        ``summary`` and ``drops`` (Markdown), ``kept_and_dropped`` and ``histogram_<filter>`` (PNG) and, where there are
        such pictures, ``dropped_pictures`` and ``kept_pictures`` (JPEG).
    """
    reasons = drop_reasons(facts.ledger) if facts.ledger is not None else {}
    pieces: dict[str, bytes | str] = {
        "summary": _summary(facts),
        "drops": _drops(facts.ledger),
        "kept_and_dropped": to_png(reasons_bar(facts.rows_kept, reasons)),
    }
    pieces |= score_histograms(facts, measures)
    if pictures is not None and facts.scores is not None:
        tiles = _tiles(facts, facts.scores, measures, pictures)
        for name, dropped in (("dropped_pictures", True), ("kept_pictures", False)):
            if chosen := [tile for tile in tiles if tile.dropped is dropped]:
                pieces[name] = contact_sheet(chosen, max_bytes=sheet_bytes)
    return pieces


def score_histograms(facts: ShardFacts, measures: Sequence[Measure]) -> dict[str, bytes]:
    """``histogram_<filter>`` (PNG) with bounds, of each of ``measures`` that the shard has values of."""
    pieces: dict[str, bytes] = {}
    for measure in measures:
        if (values := facts.values_of(measure)) is not None:
            sketch = ScoreSketch(measure)
            sketch.add(values)
            pieces[f"histogram_{measure.filter}"] = to_png(score_histogram(sketch))
    return pieces


def _summary(facts: ShardFacts) -> str:
    lines = [
        (name, text.count(before), text.count(after), text.count(before - after), text.share(after, before))
        for name, before, after in (
            ("samples", facts.samples_in, facts.samples_kept),
            ("images", facts.images_in, facts.images_kept),
            ("rows", facts.rows_in, facts.rows_kept),
        )
    ]
    parts = [text.markdown_table(("", "in", "kept", "dropped", "kept, share"), lines)]
    if facts.rows_unaccounted:
        rows = text.counted(abs(facts.rows_unaccounted), "row")
        parts.append(f"**Rows neither kept nor in the ledger, or counted twice: {rows}.**")
    if facts.not_stored:
        parts.append(f"Not shown, because deleted: {', '.join(facts.not_stored)}.")
    if facts.errors:
        errors = sorted(facts.errors.items(), key=lambda item: (-item[1], item[0]))
        cells = [(code, ROW_ERROR_CODES.get(code, ""), text.count(number)) for code, number in errors]
        parts.append(text.markdown_table(("error", "meaning", "rows"), cells, numeric_from=2))
    return "\n\n".join(parts)


def _drops(ledger: pa.Table | None) -> str:
    """Table of stage, reason and rows by modality."""
    if ledger is None or not ledger.num_rows:
        return "Nothing was dropped."
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in ledger.group_by(["stage", "reason", "modality"]).aggregate([([], "count_all")]).to_pylist():
        counts[row["stage"], row["reason"]][row["modality"]] += row["count_all"]
    ordered = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    rows = [
        (
            stage,
            reason,
            text.count(by_modality.total()),
            text.count(by_modality["image"]),
            text.count(by_modality["text"]),
            text.share(by_modality.total(), ledger.num_rows),
        )
        for (stage, reason), by_modality in ordered
    ]
    return text.markdown_table(("stage", "reason", "rows", "images", "texts", "share of drops"), rows, numeric_from=2)


def _tiles(
    facts: ShardFacts, scores: pa.Table, measures: Sequence[Measure], pictures: Mapping[ImageKey, bytes | None]
) -> list[Tile]:
    """Captioned tiles of ``pictures``, in their order."""
    scores = _of_pictures(scores, pictures)
    rows = dict(zip(_keys(scores), scores.to_pylist(), strict=True))
    scores_of = _scores_by_image(scores, measures)
    drops: dict[ImageKey, dict[str, Any]] = {}
    if facts.ledger is not None:
        ledger = _of_pictures(facts.ledger.filter(pc.equal(facts.ledger["modality"], "image")), pictures)
        drops = dict(zip(_keys(ledger), ledger.to_pylist(), strict=True))
    by_filter = {measure.filter: measure for measure in measures}
    tiles = []
    for key, data in pictures.items():
        row, drop = rows.get(key, {}), drops.get(key)
        reason = _reason(drop, by_filter) if drop else None
        others = [f"{name} {value}" for name, value in scores_of.get(key, []) if not (reason or "").startswith(name)]
        size = f"{row['width']}×{row['height']}" if row.get("width") else "size unknown"
        lines = (reason, size, *others[:1]) if reason else (*others[:2], size)
        error = row.get("score_error") or (drop["detail"] if drop else None)
        tiles.append(Tile(data, (*lines, f"{key.sample_id} at {key.position}"), drop is not None, error))
    return tiles


def _scores_by_image(scores: pa.Table, measures: Sequence[Measure]) -> dict[ImageKey, list[tuple[str, str]]]:
    """Short label and value of each score of an image; scores that follow from its size are left out."""
    scores_of: dict[ImageKey, list[tuple[str, str]]] = defaultdict(list)
    for measure in measures:
        values = measure.values(scores)
        if values is None or set(measure.columns) <= _SIZE_COLUMNS:
            continue
        for key, value in zip(_keys(scores), values.tolist(), strict=True):
            if not math.isnan(value):
                scores_of[key].append((measure.short, text.score(value)))
    return scores_of


def _reason(drop: Mapping[str, Any], by_filter: Mapping[str, Measure]) -> str:
    """Why an image was dropped, short enough for a tile: ``sharpness 41.2 < 100``."""
    reason, measured, threshold = str(drop["reason"]), drop["measured"], drop["threshold"]
    name, _, side = reason.rpartition("_")
    if side not in ("below", "above") or not isinstance(measured, float) or not isinstance(threshold, float):
        return "with its sample" if reason == SAMPLE_DROPPED else reason
    measure = by_filter.get(name)
    sign = "<" if side == "below" else "≥" if measure and measure.open_maximum else ">"
    return f"{measure.short if measure else name} {text.score(measured)} {sign} {threshold:g}"


def _of_pictures(table: pa.Table, pictures: Mapping[ImageKey, object]) -> pa.Table:
    """The rows of ``table`` (one per image) of the images in ``pictures``."""
    places = [index for index, key in enumerate(_keys(table)) if key in pictures]
    return table.take(pa.array(places, pa.int64()))


def _keys(table: pa.Table) -> list[ImageKey]:
    pairs = zip(table["sample_id"].to_pylist(), table["position"].to_pylist(), strict=True)
    return [ImageKey(sample_id, position) for sample_id, position in pairs]
