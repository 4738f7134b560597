"""Reading shards for CLIP: which images the model is to see, their texts as tokens, what the cache has of both.

All of it runs ahead of the model, in a thread of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.scoring.clip_cache import EmbeddingCache, image_key, text_key
from interleaved_assets.scoring.clip_prescreen import prescreened
from interleaved_assets.scoring.clip_samples import Image, ImageHead, Sample, ScoreTable, samples_of
from interleaved_assets.scoring.clip_settings import ClipSettings
from interleaved_assets.scoring.size import Buffer

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
        tokens: its sequences that the cache did not have, by key.
        place: where its scores go.
    """

    shard: Shard
    sample: Sample
    images: int
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
    """What it takes to prepare samples, as in :func:`~interleaved_assets.scoring.clip.score_shards`."""

    settings: ClipSettings
    schema: pa.Schema
    heads: Sequence[ImageHead]
    tokenizer: Callable[[str], list[Tokens]]
    cache: EmbeddingCache | None
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
        is_wanted = bool(sample.texts or self.heads or self.settings.keep_embeddings)
        for image in sample.images:
            if image.error is None:
                image.error = left_out.get((sample.sample_id, image.position))
            if image.error is not None or not is_wanted:
                image.data = None
            elif self.cache is not None and image.data is not None:
                image.key = image_key(image.data)
                image.vector = self.cache.get(image.key)
                if image.vector is not None:
                    image.data = None
        job = Job(shard, sample, images=sum(image.data is not None for image in sample.images))
        if job.images or any(image.vector is not None for image in sample.images):
            for _, text in sample.texts:
                sequences = {text_key(tokens): tokens for tokens in self.tokenizer(text)}
                sample.pieces.append(list(sequences))
                job.tokens |= sequences
        if self.cache is not None:
            found = {key: vector for key in job.tokens if (vector := self.cache.get(key)) is not None}
            sample.vectors |= found
            job.tokens = {key: tokens for key, tokens in job.tokens.items() if key not in found}
        return job
