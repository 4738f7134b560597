"""From shards to their score tables: read and decoded ahead in threads, embedded in batches, given out in order."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.clip.reading import Batch, PendingImage, PixelBuffers, Pixels, SampleReader, Tokens
from interleaved_assets.scoring.clip.samples import ClipSample, ShardScores, Vector
from interleaved_assets.scoring.decoders import decoders_for_threads, processors

# Batches of images that are decoded ahead of the one that is embedded next.
_BATCHES_AHEAD: Final = 2
# Batches of texts embedded at once: enough that texts of like length find each other.
_BATCHES_OF_TEXTS: Final = 4
# Texts that are kept in memory for samples to come; with a width of 768 they take 25 MB.
_REMEMBERED_TEXTS: Final = 8192


class Pending(Protocol):
    """Values that a device may still be computing."""

    def result(self) -> Vector:
        """They, n x columns, waited for."""


class Embeds(Protocol):
    """What turns pixels and tokens into embeddings; :class:`interleaved_assets.scoring.clip.embed.Embedder` does."""

    batch_size: int
    is_on_cpu: bool

    def pixel_buffer(self) -> Pixels:
        """A buffer for ``batch_size`` images, rows x height x width x 3."""

    def images(self, pixels: Pixels) -> Pending:
        """Start embedding images: their embeddings, each followed by the scores of the heads."""

    def texts(self, tokens: Sequence[Tokens]) -> Pending:
        """Start embedding token sequences."""


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


@dataclass
class ScoreStream:
    """One pass over shards. The reader runs in a thread of its own, decoding in several, all else in the caller's.

    The device always has the next batch in its queue when the host takes in the one before.

    Attributes:
        reader: prepares the samples.
        embedder: the model.
        threads: that decode; None: one for each processor that this process may use.
        stats: kept up to date.
    """

    reader: SampleReader
    embedder: Embeds
    threads: int | None
    stats: ClipStats
    _shards: deque[ShardScores] = field(default_factory=deque)
    _launched: deque[tuple[Pending, Callable[[Vector], None], str]] = field(default_factory=deque)
    _tokens: dict[bytes, Tokens] = field(default_factory=dict)
    _waiting_for: dict[bytes, list[tuple[ShardScores, ClipSample]]] = field(default_factory=dict)
    _known_texts: OrderedDict[bytes, Vector] = field(default_factory=OrderedDict)

    def run(self, shards: Iterable[tuple[str, Iterable[pa.Table]]]) -> Generator[tuple[str, pa.Table], None, None]:
        """Name and score table of each shard, in order.

        Closing it lets the threads end, and waits for nothing, so that the garbage collector may do it.
        """
        started = time.perf_counter()
        self.reader.may_decode.set()
        buffers = PixelBuffers(self.embedder.pixel_buffer)
        with decoders_for_threads(), Workers(self.threads or processors(), "clip-decode") as decoders:
            batches = self.reader.batches(shards, decoders, buffers, lambda: self.embedder.batch_size)
            for _ in self._steps(batches, buffers):
                while self._shards and self._shards[0].is_read and not self._shards[0].open_samples:
                    shard = self._shards.popleft()
                    self.stats.batch_size = self.embedder.batch_size
                    self.stats.seconds += time.perf_counter() - started
                    yield shard.name, shard.table()
                    started = time.perf_counter()

    def _steps(self, batches: Iterable[Batch], buffers: PixelBuffers) -> Iterator[None]:
        """Work through the batches; after each step shards may have become complete."""
        # prefetch() has no name here, since the traceback of an error would keep it, and its thread, alive
        since = time.perf_counter()
        for batch in prefetch(batches, depth=_BATCHES_AHEAD):
            self.stats.waited_seconds += time.perf_counter() - since
            self._take(batch)
            self._launch_images(batch, buffers)
            yield
            since = time.perf_counter()
        self._launch_texts()
        self._collect(leave=0)
        yield

    def _take(self, batch: Batch) -> None:
        self._shards += batch.begun
        for shard, sample in batch.samples:
            self.stats.images += len(sample.images)
            shard.open_samples += 1
            shard.open_images += sample.waiting
            tokens, sample.tokens = sample.tokens, {}
            for key, sequence in tokens.items():
                if key in self._known_texts:
                    self._known_texts.move_to_end(key)
                    sample.vectors[key] = self._known_texts[key]
                else:
                    if key not in self._waiting_for:
                        self._tokens[key], self._waiting_for[key] = sequence, []
                    self._waiting_for[key].append((shard, sample))
                    sample.waiting += 1
            if not sample.waiting:
                self._score(shard, sample)
            if len(self._tokens) >= _BATCHES_OF_TEXTS * self.embedder.batch_size:
                self._launch_texts()
        for shard in batch.ended:
            shard.is_read = True

    def _launch_images(self, batch: Batch, buffers: PixelBuffers) -> None:
        """Wait for a batch's pixels, give them to the device, and then take in what it was given before."""
        for checked in batch.checked:
            self._is_decoded(checked)
            self._arrived(checked.shard, checked.sample)
        rows = [row for row, pending in enumerate(batch.images) if self._is_decoded(pending)]
        images = [batch.images[row] for row in rows]
        for pending in batch.images:
            if pending.image.error is not None:
                self._arrived(pending.shard, pending.sample)
        if len(rows) < len(batch.images):
            batch.pixels[: len(rows)] = batch.pixels[rows]
        before = len(self._launched)
        if images:

            def take(values: Vector) -> None:
                buffers.give_back(batch.pixels)
                self._take_images(images, values)

            names = ", ".join(dict.fromkeys(pending.shard.name for pending in images))
            label = f"{len(images)} images of {names}"
            with _noted(label), self._computing():
                self._launched.append((self.embedder.images(batch.pixels[: len(images)]), take, label))
        else:
            buffers.give_back(batch.pixels)
        if self._shards and self._shards[0].is_read and not self._shards[0].open_images:
            self._launch_texts()
        self._collect(leave=len(self._launched) - before)

    def _is_decoded(self, pending: PendingImage) -> bool:
        """Whether an image was decoded; else its error is noted."""
        pending.shard.open_images -= 1
        try:
            pending.decoded.result()
        except ImageError as error:
            pending.image.error = error.error
            return False
        return True

    def _launch_texts(self) -> None:
        tokens, self._tokens = self._tokens, {}
        if not tokens:
            return
        label = f"{len(tokens)} texts"
        with _noted(label), self._computing():
            pending = self.embedder.texts(list(tokens.values()))
        self._launched.append((pending, lambda vectors: self._take_texts(list(tokens), vectors), label))

    def _collect(self, leave: int) -> None:
        """Take in what the device was given, but for the last ``leave`` launches."""
        while len(self._launched) > leave:
            pending, take, label = self._launched.popleft()
            with _noted(label):
                values = pending.result()
            take(values)

    def _take_images(self, images: list[PendingImage], values: Vector) -> None:
        self.stats.embedded += len(images)
        for pending, row in zip(images, values, strict=True):
            # a copy: a row of the batch would keep all of it in memory
            pending.image.values = row.copy()
            self._arrived(pending.shard, pending.sample)

    def _take_texts(self, keys: list[bytes], vectors: Vector) -> None:
        self.stats.texts += len(keys)
        for key, vector in zip(keys, vectors, strict=True):
            self._known_texts[key] = vector.copy()
            for shard, sample in self._waiting_for.pop(key):
                sample.vectors[key] = self._known_texts[key]
                self._arrived(shard, sample)
        while len(self._known_texts) > _REMEMBERED_TEXTS:
            self._known_texts.popitem(last=False)

    def _arrived(self, shard: ShardScores, sample: ClipSample) -> None:
        sample.waiting -= 1
        if not sample.waiting:
            self._score(shard, sample)

    def _score(self, shard: ShardScores, sample: ClipSample) -> None:
        shard.score(sample)
        shard.open_samples -= 1

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Keep decoding threads off the cores that a model on the CPU computes on.

        There is nothing to gain from both at once, and each layer's threads wait for the slowest of them: with a
        decoder in between that took a fifth more CPU time, and half as long again.
        """
        if self.embedder.is_on_cpu:
            self.reader.may_decode.clear()
        try:
            yield
        finally:
            self.reader.may_decode.set()


@contextmanager
def _noted(label: str) -> Iterator[None]:
    """Say what was at hand when a device fails."""
    try:
        yield
    except RuntimeError as error:
        error.add_note(f"while CLIP embedded {label}; no image was marked for it, run the shards again")
        raise
