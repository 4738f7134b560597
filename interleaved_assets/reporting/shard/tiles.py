"""Contact sheets: pictures of a shard with their scores and drop reasons, from thumbnails."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.shown import cut_text, markdown_cell
from interleaved_assets.pipeline.lineage.contents import RowKey
from interleaved_assets.reporting.documents.document import about_images, scores_by_image
from interleaved_assets.reporting.figures.drops import by_turns, common_prefix, reason_text
from interleaved_assets.reporting.figures.facts import ImageKey, ShardFacts, has_key, image_keys, thumbnails_in
from interleaved_assets.reporting.figures.measures import SIZE_COLUMNS, Measure
from interleaved_assets.reporting.wording import text
from interleaved_assets.reporting.wording.page import data_url
from interleaved_assets.scoring.images.thumbnail import smaller_thumbnail

_TEXT_LENGTH: Final = 60


class Tile(NamedTuple):
    """One picture with its caption."""

    key: ImageKey
    thumbnail: bytes | None
    """A JPEG; None for an image that could not be decoded."""
    reason: str | None
    """Reason why it was dropped; None for a kept image."""
    scores: tuple[str, ...]
    """Size and every score, such as ``sharpness 640``."""
    compared: str | None
    """The text of its sample that CLIP found nearest."""
    error: str | None
    """Error of the image, such as ``undecodable_image: …``; None without one."""


def choose_pictures(
    scores: pa.Table, ledger: pa.Table | None, dropped: int, kept: int
) -> tuple[list[ImageKey], list[ImageKey]]:
    """Return up to ``dropped`` dropped and ``kept`` kept images.

    Dropped images are taken from each reason in turn; kept images are spread evenly over the shard. Images whose
    thumbnails are stored come first.
    """
    drawn = thumbnails_in(scores).keys()
    by_reason: dict[str, list[ImageKey]] = defaultdict(list)
    gone: set[ImageKey] = set()
    if ledger is not None:
        images = ledger.filter(pc.equal(ledger["modality"], "image"))
        for key, reason in zip(image_keys(images), images["reason"].to_pylist(), strict=True):
            by_reason[reason].append(key)
            gone.add(key)
    for keys in by_reason.values():
        keys.sort(key=lambda key: key not in drawn)
    left = [key for key in image_keys(scores) if key not in gone]
    left = [key for key in left if key in drawn] or left
    if len(left) > kept:
        left = [left[index] for index in np.linspace(0, len(left) - 1, kept).round().astype(int)]
    return by_turns(by_reason, dropped), left


def compared_texts(scores: pa.Table, keys: Sequence[ImageKey]) -> dict[ImageKey, RowKey]:
    """Return the row of the nearest text for those of ``keys`` that CLIP compared with texts."""
    _, nearest, _ = about_images(scores.filter(has_key(scores, set(keys))))
    return {key: RowKey(key.sample_id, position, "text") for key, position in nearest.items() if position is not None}


def tiles_of(
    facts: ShardFacts,
    keys: Sequence[ImageKey],
    measures: Sequence[Measure],
    texts: Mapping[ImageKey, str],
    pictures: Mapping[ImageKey, bytes],
) -> list[Tile]:
    """Return the tiles of ``keys``, in their order, with their thumbnails and the nearest texts."""
    assert facts.scores is not None
    scores = facts.scores.filter(has_key(facts.scores, set(keys)))
    # scores that follow from the size are left out, because the size is shown
    values = scores_by_image(scores, [measure for measure in measures if not set(measure.columns) <= SIZE_COLUMNS])
    sizes, _, errors = about_images(scores)
    drops: dict[ImageKey, dict[str, Any]] = {}
    if facts.ledger is not None:
        images = facts.ledger.filter(pc.equal(facts.ledger["modality"], "image"))
        ledger = images.filter(has_key(images, set(keys)))
        drops = dict(zip(image_keys(ledger), ledger.to_pylist(), strict=True))
    tiles = []
    for key in keys:
        drop = drops.get(key)
        error = errors.get(key) or (drop["detail"] if drop else None)
        reason = reason_text(drop, measures) if drop else None
        scored = (f"{score.label} {score.said}" for score in values.get(key, ()))
        known = (sizes.get(key, "size unknown"), *scored)
        tiles.append(Tile(key, pictures.get(key), reason, known, texts.get(key), error))
    return tiles


def markdown_tiles(
    dropped: Sequence[Tile], kept: Sequence[Tile], *, max_bytes: int, all_dropped: int, all_kept: int
) -> str:
    """Return a contact sheet as a Markdown table of at most ``max_bytes`` bytes: dropped pictures, then kept ones.

    Ids are text and can be copied; their common beginning is written once. If not all tiles fit, both kinds are cut,
    the kept ones to a third of the table. ``all_dropped`` and ``all_kept`` are the numbers of images of the shard.
    """
    prefix = common_prefix([tile.key.sample_id for tile in (*dropped, *kept)])
    head = f"Ids begin with {markdown_cell(prefix)}\n\n" if prefix else ""
    head += "|  | outcome | scores | sample | position |\n| --- | --- | --- | --- | ---: |\n"
    room = max_bytes - len(head.encode()) - 200
    first_kept = _fitting(kept, prefix, room // 3)
    shown = _fitting(dropped, prefix, room - sum(map(_size, first_kept)))
    left = room - sum(map(_size, (*shown, *first_kept)))
    more = _fitting(kept[len(first_kept) :], prefix, left) if len(shown) == len(dropped) else []
    shown_kept = [*first_kept, *more]
    cut = f"\n\n{len(shown)} of {text.counted(all_dropped, 'dropped picture')} and {len(shown_kept)} of "
    cut += f"{all_kept:,} kept ones; more are on the page."
    said = cut if len(shown) + len(shown_kept) < all_dropped + all_kept else ""
    return f"{head}{chr(10).join([*shown, *shown_kept])}{said}" if shown or shown_kept else said.lstrip()


def _markdown_line(tile: Tile, prefix: str) -> str:
    picture = f"![picture]({data_url(smaller_thumbnail(tile.thumbnail))})" if tile.thumbnail else ""
    outcome = f"**dropped**: {markdown_cell(tile.reason)}" if tile.reason is not None else "kept"
    if tile.error:
        # often the reason with its detail; Dagster draws no line break
        error = tile.error.removeprefix(f"{tile.reason}: ")
        outcome += f": {markdown_cell(cut_text(error, _TEXT_LENGTH))}"
    scores = ", ".join(map(markdown_cell, tile.scores))
    if tile.compared:
        scores += f", compared with “{markdown_cell(cut_text(tile.compared, _TEXT_LENGTH))}”"
    sample = markdown_cell(tile.key.sample_id.removeprefix(prefix))
    return f"| {picture} | {outcome} | {scores} | {sample} | {tile.key.position} |"


def _fitting(tiles: Sequence[Tile], prefix: str, room: int) -> list[str]:
    """Return the lines of the first of ``tiles`` that fit into ``room`` bytes; the others are not drawn."""
    shown = []
    for tile in tiles:
        line = _markdown_line(tile, prefix)
        room -= _size(line)
        if room < 0:
            break
        shown.append(line)
    return shown


def _size(line: str) -> int:
    return len(line.encode()) + 1
