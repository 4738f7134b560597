"""Scoring of the images of a table on a thread pool; each image is decoded once for all scorers."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import binary_views, parts_within
from interleaved_assets.io.rows.processors import thread_count
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.images.decode import BgrImage, decode_opened, decode_plain, one_image
from interleaved_assets.scoring.images.decoders import decoders_for_threads
from interleaved_assets.scoring.images.size import aspect_ratio, displayed_size, image_size, open_header
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.registry import PreparedScorer, prepare_scorers, scores_schema
from interleaved_assets.scoring.protocol.settings import ScoringSettings

_NO_SIZE: Final = (None, None, None)
_TASK_BYTES: Final = 2**20
"""Bytes of the images that a thread takes at once: it waits for the interpreter's lock between two takes."""
_TASKS_PER_THREAD: Final = 8

Shown = Callable[[str, Mapping[str, object]], bool]
"""Says whether an image gets a thumbnail, from the id of its sample and what was measured before, by column."""


def score_images(
    rows: pa.Table, settings: ScoringSettings | None = None, *, threads: int | None = None, shown: Shown | None = None
) -> pa.Table:
    """Measure every image row.

    An image that cannot be decoded or measured gets an error in ``score_error`` (``"<code>: <detail>"``, several joined
    by ``"; "``) and null in the columns concerned. The same holds for a row with a ``materialize_error``, which is
    copied, and for a row without bytes (``missing_source``). If one scorer fails (``scorer_failed``), the other scores
    are kept; a damaged image still gets its size if the header is readable.

    At most ``threads`` decoded images are in memory at once; encoded bytes are not copied.

    Args:
        rows: ``sample_id``, ``position``, ``modality``, ``binary_content``, and optionally ``materialize_error``; rows
            of other modalities than image are ignored.
        settings: the scorers and their options; by default sharpness, QR codes and thumbnails.
        threads: images scored in parallel; by default one per processor that this process may use. The result does
            not depend on it.
        shown: says which images get a thumbnail; by default all.

    Returns:
        One row per image row, in their order, with the columns of
        :func:`.scores_schema`: ``sample_id``, ``position``, ``width``, ``height``
        (pixels, EXIF orientation applied), ``aspect_ratio`` (width ÷ height), those of the scorers, ``score_error``.

    Raises:
        MissingDependency: a scorer's package or library is absent; before any image is decoded.
        OptionError: a column of ``rows`` is missing or null.
    """
    check_rows(rows, ("binary_content",), "score_images")
    (scores,) = score_batches([rows], settings, threads=threads, shown=shown)
    return scores


def score_batches(
    tables: Iterable[pa.Table],
    settings: ScoringSettings | None = None,
    *,
    threads: int | None = None,
    shown: Shown | None = None,
) -> Iterator[pa.Table]:
    """Yield :func:`score_images` of each of ``tables``.

    The next table is taken while the images of one are measured.
    """
    settings = settings or ScoringSettings()
    scorers = prepare_scorers(settings)
    schema = scores_schema(settings)
    names = schema.names[2:]

    def score(sources: Sequence[tuple[str, memoryview | str]]) -> list[tuple[object, ...]]:
        return [
            _unscored(source, scorers)
            if isinstance(source, str)
            else score_image(source, scorers, max_pixels=settings.max_pixels, show=_asked(shown, sample_id, names))
            for sample_id, source in sources
        ]

    if not scorers:
        # reading a header takes microseconds, less than handing it to a thread
        for images in map(_images, tables):
            yield _score_table(images, score(_sources(images)), schema)
        return
    waiting: deque[tuple[pa.Table, list[Future[list[tuple[object, ...]]]]]] = deque()
    threads = thread_count(threads)
    with decoders_for_threads(), Workers(threads, "score") as pool:
        for images in map(_images, tables):
            sources = _sources(images)
            sizes = np.array([len(source) for _, source in sources], np.int64)
            parts = parts_within(sizes, min(_TASK_BYTES, int(sizes.sum()) // (_TASKS_PER_THREAD * threads)))
            waiting.append((images, [pool.submit(score, sources[part]) for part in parts]))
            del images, sources
            if len(waiting) > 1:
                yield _measured(*waiting.popleft(), schema)
        while waiting:
            yield _measured(*waiting.popleft(), schema)


def _images(table: pa.Table) -> pa.Table:
    return filter_rows(table, pc.equal(table["modality"], "image"))


def _measured(images: pa.Table, tasks: list[Future[list[tuple[object, ...]]]], schema: pa.Schema) -> pa.Table:
    return _score_table(images, list(itertools.chain.from_iterable(task.result() for task in tasks)), schema)


def _asked(shown: Shown | None, sample_id: str, names: Sequence[str]) -> Callable[[Sequence[object]], bool] | None:
    """Return what decides on the thumbnail of an image of this sample, from the values of the first columns."""
    return None if shown is None else lambda values: shown(sample_id, dict(zip(names, values, strict=False)))


def score_image(
    data: Buffer,
    scorers: Sequence[PreparedScorer],
    *,
    max_pixels: int,
    show: Callable[[Sequence[object]], bool] | None = None,
) -> tuple[object, ...]:
    """Return a row of the score table: width, height, aspect ratio, each scorer's columns, error text or None.

    ``show`` says from the columns so far whether the image gets a thumbnail; without it, it does.
    """
    errors: list[str] = []
    size: tuple[object, ...] = _NO_SIZE
    image: BgrImage | None = None
    try:
        if not scorers:
            return *_sized(*image_size(data)), None
        with one_image("decode"):
            image = decode_plain(data, max_pixels=max_pixels)
        if image is not None:
            height, width = image.shape[:2]
            size = _sized(width, height)
        else:
            header = open_header(data, max_pixels=max_pixels)
            size = _sized(*displayed_size(header))
            with one_image("decode"):
                image = decode_opened(header, data, max_pixels=max_pixels)
    except ImageError as error:
        errors.append(error.error)
    if image is not None:
        image.flags.writeable = False  # a scorer that drew on it would change the scores of those after it
    values: list[object] = []
    for prepared in scorers:
        if show is not None and THUMBNAIL_COLUMN in prepared.scorer.columns and not show([*size, *values]):
            values.append(None)
            continue
        values += _measure(prepared, data if prepared.scorer.of_bytes else image, errors)
    return *size, *values, "; ".join(errors) or None


def _sized(width: int, height: int) -> tuple[int, int, float]:
    return width, height, aspect_ratio(width, height)


def _measure(prepared: PreparedScorer, image: BgrImage | Buffer | None, errors: list[str]) -> Sequence[object]:
    if image is not None:
        try:
            with one_image(prepared.scorer.name):
                measured = prepared.measure(image)
                values = measured if isinstance(measured, tuple) else (measured,)
                for value, dtype in prepared.of_columns(values):
                    pa.array([value], dtype)  # raises where the column cannot hold the value
                return values
        except ImageError as error:
            errors.append(error.error)
        except SystemExit as error:  # of the scorer, which does not run in the main thread
            errors.append(row_error("scorer_failed", f"{prepared.scorer.name}: SystemExit: {error}"))
    return (None,) * len(prepared.scorer.columns)


def _unscored(error: str, scorers: Sequence[PreparedScorer]) -> tuple[object, ...]:
    columns = sum(len(prepared.scorer.columns) for prepared in scorers)
    return *_NO_SIZE, *(None,) * columns, error


def _sources(images: pa.Table) -> list[tuple[str, memoryview | str]]:
    """Return the id of each image's sample with the bytes of the image, or an error text if it has none."""
    contents: list[memoryview | str | None] = [*binary_views(images["binary_content"])]
    if "materialize_error" in images.column_names:
        errors = images["materialize_error"].to_pylist()
        contents = [content if error is None else error for content, error in zip(contents, errors, strict=True)]
    nothing = row_error("missing_source", "the row has no bytes: materialize it before scoring")
    ids = images["sample_id"].to_pylist()
    return [(one, nothing if content is None else content) for one, content in zip(ids, contents, strict=True)]


def _score_table(images: pa.Table, measured: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    keys = [images["sample_id"], images["position"]]
    fields = list(schema)[len(keys) :]
    columns = zip(*measured, strict=True) if measured else [()] * len(fields)
    measures = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.table([*keys, *measures], schema=schema)
