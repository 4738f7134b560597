"""Scoring of shards: they are read and decoded ahead in threads, embedded in batches, and returned in order."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.rows.processors import processors
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import ImageError, OptionError
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.samples import NO_TEXT, ClipImage, ClipSample, ClipText, Pixels, samples_of
from interleaved_assets.scoring.clip.scorer import ClipScorer
from interleaved_assets.scoring.images.decoders import decoders_for_threads

if TYPE_CHECKING:
    from interleaved_assets.scoring.clip.embed import Launched

ImageScores = Callable[[str], pa.Table]
"""A function that returns the image scores of the shard with that name, for ``clip.prescreen``."""

# Batches of images that are decoded ahead of the one that is embedded next.
_BATCHES_AHEAD: Final = 2
# Batches of texts embedded at once: enough to group texts of similar length.
_BATCHES_OF_TEXTS: Final = 4
# Tables that may wait for the caller.
_TABLES_AHEAD: Final = 2
# A batch with few images ends after so many samples for each row, so that its memory is bounded too.
_SAMPLES_PER_ROW: Final = 8
# Texts whose embeddings are kept in memory for later samples; with a width of 768 they take 25 MB.
_REMEMBERED_TEXTS: Final = 8192


@dataclass
class ClipStats:
    """Counts of one call of :func:`score_shards`, kept up to date while it runs.

    Attributes:
        embedded: images the model was given.
        texts: sequences (texts, or windows of them) the model was given.
        waited_seconds: time without a decoded batch to give to the device.
    """

    embedded: int = 0
    texts: int = 0
    waited_seconds: float = 0.0


def score_shards(
    shards: Iterable[tuple[str, Iterable[pa.Table]]],
    scorer: ClipScorer,
    *,
    image_scores: ImageScores | None = None,
    stats: ClipStats | None = None,
) -> Generator[tuple[str, pa.Table], None, None]:
    """Score the images of shards; yield each shard's table once it and those before it are complete.

    Scores do not depend on which shards are scored together, except for the rounding of the arithmetic.

    Args:
        shards: name of each shard and its tables, each of whole samples, with ``sample_id``, ``position``,
            ``modality``, ``text_content``, ``binary_content`` and optionally ``materialize_error``. They are read in
            one thread, and scored in another.
        scorer: from :func:`~interleaved_assets.scoring.clip.scorer.load_scorer`.
        image_scores: gives a shard's stored image scores; needed with ``clip.prescreen``.
        stats: counts that are kept up to date.

    Yields:
        Name and score table of each shard, in the order given; see
        :func:`~interleaved_assets.scoring.clip.samples.clip_schema`.

    Raises:
        OptionError: at once, ``clip.prescreen`` is on and ``image_scores`` is not given.
        SettingsError: a bound of ``clip.prescreen`` is on a score that was not computed; the model's values are not
            finite.
        Exception: any failure of the device. Earlier shards stay valid, and no image gets an error for it.
    """
    if scorer.settings.prescreen.is_on and image_scores is None:
        raise OptionError("clip.prescreen has bounds, so image_scores= has to give the scores they are on")
    stream = ScoreStream(scorer, image_scores, ClipStats() if stats is None else stats)
    # in a thread of its own, so that the device has work while the caller writes a table
    return prefetch(stream.run(shards), depth=_TABLES_AHEAD)


def score_table(table: pa.Table, scorer: ClipScorer, *, image_scores: pa.Table | None = None) -> pa.Table:
    """Score a single table of whole samples as :func:`score_shards` does, for a notebook or a script."""
    given = None if image_scores is None else lambda _: image_scores
    ((_, scores),) = score_shards([("", [table])], scorer, image_scores=given)
    return scores


@dataclass
class _Batch:
    """The samples read since the batch before. Its images may still be being decoded.

    Attributes:
        pixels: height x width x 3, uint8, of each row, written by the decoding threads; there may be fewer images.
        images: the image of each row.
        checked: images decoded only to learn whether they can be.
        decoded: the decoding tasks of both; an image that cannot be decoded gets its ``error``.
        met: each sample with its shard's name; None instead of a sample at the end of a shard.
    """

    pixels: Pixels
    images: list[ClipImage] = field(default_factory=list)
    checked: list[ClipImage] = field(default_factory=list)
    decoded: list[Future[None]] = field(default_factory=list)
    met: list[tuple[str, ClipSample | None]] = field(default_factory=list)


class ScoreStream:
    """One pass over shards: one thread reads and tokenizes, several decode, and the caller's feeds the device.

    The device always has the next batch in its queue when the host takes the one before.
    """

    def __init__(self, scorer: ClipScorer, image_scores: ImageScores | None, stats: ClipStats) -> None:
        self._scorer, self._embedder, self._stats = scorer, scorer.embedder, stats
        self._image_scores = image_scores if scorer.settings.prescreen.is_on else None
        self._text = lru_cache(_REMEMBERED_TEXTS)(ClipText)
        # pixel buffers that the device has read, to be used again
        self._free: deque[Pixels] = deque()
        # no thread begins to decode an image while this is cleared
        self._may_decode = threading.Event()
        self._may_decode.set()
        self._met: deque[tuple[str, ClipSample | None]] = deque()
        self._texts: list[ClipText] = []
        self._launched: deque[tuple[Launched, Sequence[ClipImage | ClipText], Pixels | None]] = deque()

    def run(self, shards: Iterable[tuple[str, Iterable[pa.Table]]]) -> Generator[tuple[str, pa.Table], None, None]:
        """Yield the name and score table of each shard, in order.

        Closing the generator lets the threads end, and does not wait, because the garbage collector may close it.
        """
        settings = self._scorer.settings
        rows: list[dict[str, object]] = []
        with decoders_for_threads(), Workers(settings.threads or processors(), "clip-decode") as decoders:
            since = time.perf_counter()
            # prefetch() gets no name here: the traceback of an error would keep it, and its thread, alive
            for batch in prefetch(self._batches(shards, decoders), depth=_BATCHES_AHEAD):
                for decoded in batch.decoded:
                    decoded.result()
                self._stats.waited_seconds += time.perf_counter() - since
                self._met += batch.met
                try:
                    self._give(batch)
                except RuntimeError as error:
                    names = ", ".join(dict.fromkeys(name for name, _ in self._met))
                    error.add_note(f"while CLIP embedded {names}; no image was marked for it, run the shards again")
                    raise
                while self._met and ((sample := self._met[0][1]) is None or sample.is_complete):
                    name, _ = self._met.popleft()
                    if sample is not None:
                        rows += sample.scores(settings)
                    else:
                        yield name, pa.Table.from_pylist(rows, schema=self._scorer.schema)
                        rows = []
                since = time.perf_counter()

    def _batches(self, shards: Iterable[tuple[str, Iterable[pa.Table]]], decoders: Workers) -> Iterator[_Batch]:
        """Yield the samples of all shards in batches of the model's batch size; the last batch is empty.

        A shard's next table is read while the samples of the one before are prepared.
        """
        settings = self._scorer.settings
        batch = self._new_batch()
        for name, tables in shards:
            left_out = prescreened(self._image_scores(name), settings.prescreen) if self._image_scores else {}
            for table in prefetch(tables):
                for sample in samples_of(table, left_out):
                    to_decode = [image for image in sample.images if image.error is None]
                    for _, text in sample.texts if to_decode else ():
                        # texts with equal tokens count as equal, since the model cannot tell them apart
                        sample.pieces.append([self._text(part.tobytes()) for part in self._scorer.tokenizer(text)])
                    batch.met.append((name, sample))
                    is_embedded = bool(sample.texts or settings.heads or settings.keep_embeddings)
                    for image in to_decode:
                        row = batch.pixels[len(batch.images)] if is_embedded else None
                        batch.decoded.append(decoders.submit(self._decode, image, row))
                        alike = batch.images if is_embedded else batch.checked
                        alike.append(image)
                        if len(alike) == len(batch.pixels):
                            yield batch
                            batch = self._new_batch()
                    if len(batch.met) >= len(batch.pixels) * _SAMPLES_PER_ROW:
                        yield batch
                        batch = self._new_batch()
            batch.met.append((name, None))
        yield batch
        yield self._new_batch()

    def _new_batch(self) -> _Batch:
        return _Batch(self._free.popleft() if self._free else self._embedder.pixel_buffer())

    def _decode(self, image: ClipImage, row: Pixels | None) -> None:
        """Decode an image into its row of pixels; without a row, only check that it can be decoded."""
        self._may_decode.wait()
        try:
            decoded = self._scorer.preprocess(image.data)
        except ImageError as error:
            image.error = error.error
        else:
            if row is None:
                image.error = NO_TEXT
            else:
                row[:] = decoded
        image.data = b""

    def _give(self, batch: _Batch) -> None:
        """Give a decoded batch to the device, then take the results of the one before."""
        before = len(self._launched)
        rows = [row for row, image in enumerate(batch.images) if image.error is None]
        if rows:
            pixels = batch.pixels[: len(rows)]
            if len(rows) < len(batch.images):
                pixels[:] = batch.pixels[rows]
            self._launch(lambda: self._embedder.images(pixels), [batch.images[row] for row in rows], batch.pixels)
            self._stats.embedded += len(rows)
        else:
            self._free.append(batch.pixels)
        for _, sample in batch.met:
            for text in chain.from_iterable(sample.pieces if sample else ()):
                if not text.is_met:
                    text.is_met = True
                    self._texts.append(text)
            if len(self._texts) >= _BATCHES_OF_TEXTS * self._embedder.batch_size:
                self._launch_texts()
        if any(sample is None for _, sample in self._met):
            self._launch_texts()
        for _ in range(before):
            launched, items, buffer = self._launched.popleft()
            for item, values in zip(items, launched.result(), strict=True):
                # a copy: a row of the batch would keep all of it in memory
                item.values = values.copy()
            if buffer is not None:
                self._free.append(buffer)

    def _launch_texts(self) -> None:
        # texts of similar length follow each other
        texts, self._texts = sorted(self._texts, key=lambda text: len(text.key)), []
        if texts:
            self._launch(lambda: self._embedder.texts([text.tokens for text in texts]), texts)
            self._stats.texts += len(texts)

    def _launch(
        self, embed: "Callable[[], Launched]", items: Sequence[ClipImage | ClipText], pixels: Pixels | None = None
    ) -> None:
        """Put work in the device's queue; keep decoding threads off the cores that a model on the CPU computes on.

        Both at once gain nothing, because each layer's threads wait for the slowest of them: with a decoder on the same
        cores this took a fifth more CPU time, and half as long again.
        """
        if self._embedder.is_on_cpu:
            self._may_decode.clear()
        try:
            self._launched.append((embed(), items, pixels))
        finally:
            self._may_decode.set()
