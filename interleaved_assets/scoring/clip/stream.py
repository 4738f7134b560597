"""From shards to their score tables: read and decoded ahead in threads, embedded in batches, given out in order."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.samples import Image, ImageHead, Sample, ScoreTable, Vector, samples_of
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.containers import Buffer
from interleaved_assets.scoring.decoders import decoders_for_threads, processors

Pixels = NDArray[np.uint8]
Tokens = NDArray[np.int32]

ImageScores = Callable[[str], pa.Table]
"""Given a shard's name, its image scores, for ``clip.prescreen``."""


@dataclass
class Shard:
    """A shard, of which samples are to follow.

    Attributes:
        open_samples: samples met that are not scored yet.
        open_images: images of theirs that are on their way to an embedding.
        is_read: whether all its samples have been met.
    """

    name: str
    scores: ScoreTable
    open_samples: int = 0
    open_images: int = 0
    is_read: bool = False


@dataclass
class Job:
    """A sample to be scored, of which images are to follow.

    Attributes:
        images: how many will come as :class:`Decoding`.
        embeds_images: whether the model is given them; else they are decoded only to learn whether they can be.
        tokens: its sequences that have no embedding yet, by key.
        place: where its scores go.
    """

    shard: Shard
    sample: Sample
    images: int
    embeds_images: bool
    tokens: dict[bytes, Tokens] = field(default_factory=dict)
    place: int = -1


@dataclass(frozen=True)
class Decoding:
    """An image on its way to pixels."""

    job: Job
    image: Image
    pixels: Future[Pixels]


@dataclass(frozen=True)
class ShardEnd:
    """All samples of a shard have been met."""

    shard: Shard


@dataclass(frozen=True)
class AllRead:
    """Nothing follows."""


Step = Shard | Job | Decoding | ShardEnd | AllRead


@dataclass(frozen=True)
class ShardReader:
    """What it takes to prepare samples, as in :func:`~interleaved_assets.scoring.clip.scores.score_shards`."""

    settings: ClipSettings
    schema: pa.Schema
    heads: Sequence[ImageHead]
    tokenizer: Callable[[str], list[Tokens]]
    image_scores: ImageScores | None

    def steps(
        self, shards: Iterable[tuple[str, Iterable[pa.Table]]], decode: Callable[[Buffer], Future[Pixels]]
    ) -> Iterator[Step]:
        """Each shard, its samples, each followed by its images, and its end; at the very end :class:`AllRead`."""
        for name, tables in shards:
            left_out: dict[tuple[str, int], str] = {}
            if self.image_scores is not None and self.settings.prescreen.is_on:
                left_out = prescreened(self.image_scores(name), self.settings.prescreen)
            shard = Shard(name, ScoreTable(self.schema, self.heads))
            yield shard
            for table in tables:
                for sample in samples_of(table):
                    job = self._prepare(shard, sample, left_out)
                    to_decode = [(image, image.data) for image in sample.images if image.data is not None]
                    yield job
                    for image, data in to_decode:
                        image.data = None
                        yield Decoding(job, image, decode(data))
            yield ShardEnd(shard)
        yield AllRead()

    def _prepare(self, shard: Shard, sample: Sample, left_out: dict[tuple[str, int], str]) -> Job:
        for image in sample.images:
            if image.error is None:
                image.error = left_out.get((sample.sample_id, image.position))
            if image.error is not None:
                image.data = None
        job = Job(
            shard,
            sample,
            images=sum(image.data is not None for image in sample.images),
            embeds_images=bool(sample.texts or self.heads or self.settings.keep_embeddings),
        )
        if job.images:
            for _, text in sample.texts:
                # texts that the model cannot tell apart count as equal
                sequences = {_text_key(tokens): tokens for tokens in self.tokenizer(text)}
                sample.pieces.append(list(sequences))
                job.tokens |= sequences
        return job


def _text_key(tokens: Tokens) -> bytes:
    return tokens.astype(np.int32).tobytes()


# Batches of images that are decoded ahead of the one on the device.
_BATCHES_AHEAD: Final = 2
# Batches of texts embedded at once: enough that texts of like length find each other.
_BATCHES_OF_TEXTS: Final = 4
# Texts that are kept in memory for samples to come; with a width of 768 they take 25 MB.
_REMEMBERED_TEXTS: Final = 8192


class Pending(Protocol):
    """Embeddings that a device may still be computing."""

    def result(self) -> Vector:
        """They, n x width, waited for."""


class Embeds(Protocol):
    """What turns pixels and tokens into embeddings; :class:`interleaved_assets.scoring.clip.embed.Embedder` does."""

    batch_size: int
    is_on_cpu: bool

    def images(self, pixels: Sequence[Pixels]) -> Pending:
        """Start embedding images."""

    def texts(self, tokens: Sequence[Tokens]) -> Vector:
        """Embed token sequences."""


@dataclass
class ClipStats:
    """Counts of one call of :func:`score_shards`, kept up to date while it goes on.

    Attributes:
        images: image rows met.
        embedded: images the model was given.
        texts: sequences (texts, or windows of them) the model was given.
        seconds: time spent here, without what the caller did between two shards.
        batch_size: images given to the model at once, last.
    """

    images: int = 0
    embedded: int = 0
    texts: int = 0
    seconds: float = 0.0
    batch_size: int = 0

    @property
    def images_per_second(self) -> float:
        """Images embedded ÷ seconds; 0 where none was."""
        return self.embedded / self.seconds if self.seconds else 0.0


_Batch = list[tuple[Job, Image, Pixels]]


@dataclass
class ScoreStream:
    """One pass over shards. The reader runs in a thread of its own, decoding in several, all else in the caller's.

    Attributes:
        reader: prepares the samples.
        preprocess: an image's bytes to pixels; an ImageError where it cannot.
        embedder: the model.
        threads: that decode; None: one for each processor that this process may use.
        stats: kept up to date.
    """

    reader: ShardReader
    preprocess: Callable[[Buffer], Pixels]
    embedder: Embeds
    threads: int | None
    stats: ClipStats
    _may_decode: threading.Event = field(default_factory=threading.Event)
    _shards: deque[Shard] = field(default_factory=deque)
    _images: _Batch = field(default_factory=list)
    _launched: tuple[_Batch, Pending] | None = None
    _tokens: dict[bytes, Tokens] = field(default_factory=dict)
    _waiting_for: dict[bytes, list[Job]] = field(default_factory=dict)
    _known_texts: OrderedDict[bytes, Vector] = field(default_factory=OrderedDict)

    def run(self, shards: Iterable[tuple[str, Iterable[pa.Table]]]) -> Generator[tuple[str, pa.Table], None, None]:
        """Name and score table of each shard, in order.

        Closing it lets the threads end, and waits for nothing, so that the garbage collector may do it.
        """
        started = time.perf_counter()
        self._may_decode.set()
        with decoders_for_threads(), Workers(self.threads or processors(), "clip-decode") as decoders:
            steps = self.reader.steps(shards, lambda data: decoders.submit(self._decode, data))
            for step in prefetch(steps, depth=_BATCHES_AHEAD * self.embedder.batch_size):
                self._take(step)
                while (shard := self._next_complete()) is not None:
                    self.stats.seconds += time.perf_counter() - started
                    yield shard.name, shard.scores.table()
                    started = time.perf_counter()

    def _decode(self, data: Buffer) -> Pixels:
        self._may_decode.wait()
        return self.preprocess(data)

    def _take(self, step: Step) -> None:
        match step:
            case Shard():
                self._shards.append(step)
            case Job():
                self._take_job(step)
            case Decoding():
                try:
                    pixels = step.pixels.result()
                except ImageError as error:
                    step.image.error = error.error
                    self._image_done(step.job)
                else:
                    if step.job.embeds_images:
                        self._images.append((step.job, step.image, pixels))
                    else:
                        self._image_done(step.job)
                if len(self._images) >= self.embedder.batch_size:
                    self._embed_images()
            case ShardEnd():
                step.shard.is_read = True
            case AllRead():
                self._embed_images()
                self._collect_images()

    def _take_job(self, job: Job) -> None:
        sample = job.sample
        self.stats.images += len(sample.images)
        job.place = job.shard.scores.reserve()
        job.shard.open_samples += 1
        job.shard.open_images += job.images
        sample.waiting = job.images
        for key, tokens in job.tokens.items():
            if key in self._known_texts:
                self._known_texts.move_to_end(key)
                sample.vectors[key] = self._known_texts[key]
            else:
                self._tokens[key] = tokens
                self._waiting_for.setdefault(key, []).append(job)
                sample.waiting += 1
        job.tokens = {}
        self._fill_if_complete(job)
        if len(self._tokens) >= _BATCHES_OF_TEXTS * self.embedder.batch_size:
            self._embed_texts()

    def _next_complete(self) -> Shard | None:
        """The shard at the head, if it is complete; its last texts are embedded where nothing else is missing."""
        if not self._shards or not self._shards[0].is_read:
            return None
        head = self._shards[0]
        if head.open_samples and not head.open_images:
            self._embed_texts()
        if head.open_samples:
            return None
        self.stats.batch_size = self.embedder.batch_size
        return self._shards.popleft()

    def _embed_images(self) -> None:
        """Start a batch, and then take in the one before: the device computes while its results are dealt with."""
        if not self._images:
            return
        batch, self._images = self._images, []
        with _noted(batch), self._computing():
            launched = self.embedder.images([pixels for _, _, pixels in batch])
        self._collect_images()
        self._launched = batch, launched

    def _collect_images(self) -> None:
        if self._launched is None:
            return
        (batch, launched), self._launched = self._launched, None
        with _noted(batch):
            vectors = launched.result()
        self.stats.embedded += len(batch)
        for (job, image, _), vector in zip(batch, vectors, strict=True):
            # a copy: a row of the batch would keep all of it in memory
            image.vector = vector.copy()
            self._image_done(job)

    def _embed_texts(self) -> None:
        tokens, self._tokens = self._tokens, {}
        waiting, self._waiting_for = self._waiting_for, {}
        if not tokens:
            return
        with self._computing():
            vectors = self.embedder.texts(list(tokens.values()))
        self.stats.texts += len(tokens)
        for key, vector in zip(tokens, vectors, strict=True):
            self._known_texts[key] = vector.copy()
            for job in waiting[key]:
                job.sample.vectors[key] = self._known_texts[key]
                job.sample.waiting -= 1
                self._fill_if_complete(job)
        while len(self._known_texts) > _REMEMBERED_TEXTS:
            self._known_texts.popitem(last=False)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Keep decoding threads off the cores that a model on the CPU computes on.

        There is nothing to gain from both at once, and each layer's threads wait for the slowest of them: with a
        decoder in between that took a fifth more CPU time, and half as long again.
        """
        if self.embedder.is_on_cpu:
            self._may_decode.clear()
        try:
            yield
        finally:
            self._may_decode.set()

    def _image_done(self, job: Job) -> None:
        job.shard.open_images -= 1
        job.sample.waiting -= 1
        self._fill_if_complete(job)

    def _fill_if_complete(self, job: Job) -> None:
        if not job.sample.waiting:
            job.shard.scores.fill(job.place, job.sample)
            job.shard.open_samples -= 1


@contextmanager
def _noted(batch: _Batch) -> Iterator[None]:
    """Say which shards were at hand when a device fails."""
    try:
        yield
    except RuntimeError as error:
        names = ", ".join(dict.fromkeys(job.shard.name for job, _, _ in batch))
        error.add_note(
            f"while CLIP embedded {len(batch)} images of {names}; no image was marked for it, run them again"
        )
        raise
