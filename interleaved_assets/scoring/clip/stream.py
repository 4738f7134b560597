"""From shards to their score tables: read and decoded ahead in threads, embedded in batches, given out in order."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.clip.reading import Batch, ImageScores, SampleReader
from interleaved_assets.scoring.clip.samples import ClipSample, ClipText, Vector
from interleaved_assets.scoring.clip.scorer import ClipScorer
from interleaved_assets.scoring.decoders import decoders_for_threads, processors

if TYPE_CHECKING:
    from interleaved_assets.scoring.clip.embed import Launched

# Batches of images that are decoded ahead of the one that is embedded next.
_BATCHES_AHEAD: Final = 2
# Batches of texts embedded at once: enough that texts of like length find each other.
_BATCHES_OF_TEXTS: Final = 4
# Tables that may wait for the caller.
_TABLES_AHEAD: Final = 2


@dataclass
class ClipStats:
    """Counts of one call of :func:`score_shards`, kept up to date while it goes on.

    Attributes:
        images: image rows met.
        embedded: images the model was given.
        texts: sequences (texts, or windows of them) the model was given.
        seconds: time spent here, without what the caller did between two shards.
        waited_seconds: of these, time without a decoded batch to give to the device.
        batch_size: images given to the model at once, last.
    """

    images: int = 0
    embedded: int = 0
    texts: int = 0
    seconds: float = 0.0
    waited_seconds: float = 0.0
    batch_size: int = 0


def score_shards(
    shards: Iterable[tuple[str, Iterable[pa.Table]]],
    scorer: ClipScorer,
    *,
    image_scores: ImageScores | None = None,
    stats: ClipStats | None = None,
) -> Generator[tuple[str, pa.Table], None, None]:
    """Score the images of shards; each shard's table comes as soon as it and those before it are complete.

    Scores do not depend on which shards go together beyond the rounding of the arithmetic.

    Args:
        shards: name of each shard and its tables, each of whole samples, with ``sample_id``, ``position``,
            ``modality``, ``text_content``, ``binary_content`` and, where there is one, ``materialize_error``. Read in a
            thread of its own, and scored in another.
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
        Exception: whatever the device fails with. The shards that came before stand, and no image is marked for it.
    """
    if scorer.settings.prescreen.is_on and image_scores is None:
        raise OptionError("clip.prescreen has bounds, so image_scores= has to give the scores they are on")
    stream = ScoreStream(scorer, image_scores, ClipStats() if stats is None else stats)
    # in a thread of its own, so that the device has work while the caller writes a table
    return prefetch(stream.run(shards), depth=_TABLES_AHEAD)


def score_table(table: pa.Table, scorer: ClipScorer, *, image_scores: pa.Table | None = None) -> pa.Table:
    """:func:`score_shards` for a single table of whole samples, in a notebook or a script."""
    given = None if image_scores is None else lambda _: image_scores
    ((_, scores),) = score_shards([("", [table])], scorer, image_scores=given)
    return scores


class ScoreStream:
    """One pass over shards. The reader runs in a thread of its own, decoding in several, all else in the caller's.

    The device always has the next batch in its queue when the host takes in the one before.

    Args:
        scorer: the model, and what prepares samples for it.
        image_scores: gives a shard's stored image scores, for ``clip.prescreen``.
        stats: kept up to date.
    """

    def __init__(self, scorer: ClipScorer, image_scores: ImageScores | None, stats: ClipStats) -> None:
        self._scorer, self._embedder, self._stats = scorer, scorer.embedder, stats
        self._reader = SampleReader(scorer, image_scores)
        self._met: deque[ClipSample | str] = deque()
        self._texts: list[ClipText] = []
        self._launched: deque[tuple[Launched, Callable[[Vector], None], str]] = deque()

    def run(self, shards: Iterable[tuple[str, Iterable[pa.Table]]]) -> Generator[tuple[str, pa.Table], None, None]:
        """Name and score table of each shard, in order.

        Closing it lets the threads end, and waits for nothing, so that the garbage collector may do it.
        """
        started = time.perf_counter()
        self._reader.may_decode.set()
        settings = self._scorer.settings
        rows: list[dict[str, object]] = []
        with decoders_for_threads(), Workers(settings.threads or processors(), "clip-decode") as decoders:
            for _ in self._steps(self._reader.batches(shards, decoders)):
                while self._met and (isinstance(first := self._met[0], str) or first.is_complete):
                    self._met.popleft()
                    if isinstance(first, ClipSample):
                        rows += first.scores(settings)
                        continue
                    table, rows = pa.Table.from_pylist(rows, schema=self._scorer.schema), []
                    self._stats.batch_size = self._embedder.batch_size
                    self._stats.seconds += time.perf_counter() - started
                    yield first, table
                    started = time.perf_counter()

    def _steps(self, batches: Iterable[Batch]) -> Iterator[None]:
        """Work through the batches; after each step shards may have become complete."""
        # prefetch() has no name here, since the traceback of an error would keep it, and its thread, alive
        since = time.perf_counter()
        for batch in prefetch(batches, depth=_BATCHES_AHEAD):
            self._stats.waited_seconds += time.perf_counter() - since
            self._take(batch)
            self._launch_images(batch)
            yield
            since = time.perf_counter()
        self._launch_texts()
        self._collect(leave=0)
        yield

    def _take(self, batch: Batch) -> None:
        for met in batch.met:
            self._met.append(met)
            if isinstance(met, str):
                continue
            self._stats.images += len(met.images)
            for pieces in met.pieces:
                for text in pieces:
                    if not text.is_met:
                        text.is_met = True
                        self._texts.append(text)
            if len(self._texts) >= _BATCHES_OF_TEXTS * self._embedder.batch_size:
                self._launch_texts()

    def _launch_images(self, batch: Batch) -> None:
        """Wait for a batch's pixels, give them to the device, and then take in what it was given before."""
        for decoded in batch.decoded:
            decoded.result()
        for _, image in batch.images:
            image.is_pending = image.error is None and image.row is not None
        images = [(shard, image) for shard, image in batch.images if image.is_pending]
        pixels = batch.pixels[: len(images)]
        if len(images) < batch.rows:
            pixels[:] = batch.pixels[[image.row for _, image in images if image.row is not None]]

        def take(values: Vector) -> None:
            self._reader.free.append(batch.pixels)
            self._stats.embedded += len(images)
            for (_, image), row in zip(images, values, strict=True):
                # a copy: a row of the batch would keep all of it in memory
                image.values, image.is_pending = row.copy(), False

        before = len(self._launched)
        if images:
            names = ", ".join(dict.fromkeys(shard for shard, _ in images))
            self._launch(lambda: self._embedder.images(pixels), take, f"{len(images)} images of {names}")
        else:
            self._reader.free.append(batch.pixels)
        if any(isinstance(met, str) for met in self._met):
            self._launch_texts()
        self._collect(leave=len(self._launched) - before)

    def _launch_texts(self) -> None:
        texts, self._texts = self._texts, []
        tokens = [text.tokens for text in texts]

        def take(vectors: Vector) -> None:
            self._stats.texts += len(texts)
            for text, vector in zip(texts, vectors, strict=True):
                text.vector = vector.copy()

        if texts:
            self._launch(lambda: self._embedder.texts(tokens), take, f"{len(texts)} texts")

    def _launch(self, embed: "Callable[[], Launched]", take: Callable[[Vector], None], label: str) -> None:
        """Put work in the device's queue; keep decoding threads off the cores that a model on the CPU computes on.

        There is nothing to gain from both at once, and each layer's threads wait for the slowest of them: with a
        decoder in between that took a fifth more CPU time, and half as long again.
        """
        if self._embedder.is_on_cpu:
            self._reader.may_decode.clear()
        try:
            with _noted(label):
                self._launched.append((embed(), take, label))
        finally:
            self._reader.may_decode.set()

    def _collect(self, leave: int) -> None:
        """Take in what the device was given, but for the last ``leave`` launches."""
        while len(self._launched) > leave:
            launched, take, label = self._launched.popleft()
            with _noted(label):
                values = launched.result()
            take(values)


@contextmanager
def _noted(label: str) -> Iterator[None]:
    """Say what was at hand when a device fails."""
    try:
        yield
    except RuntimeError as error:
        error.add_note(f"while CLIP embedded {label}; no image was marked for it, run the shards again")
        raise
