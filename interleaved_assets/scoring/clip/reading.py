"""Shards to batches of pixels: samples read and tokenized in one thread, their images decoded in several."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.samples import ClipImage, ClipSample, ClipText, Pixels, samples_of
from interleaved_assets.scoring.clip.scorer import ClipScorer

ImageScores = Callable[[str], pa.Table]
"""Given a shard's name, its image scores, for ``clip.prescreen``."""

# Images that the device decodes in one call.
_DECODED_TOGETHER: Final = 32
# A batch with few images ends after so many samples for each row, so that it is bounded too.
_SAMPLES_PER_ROW: Final = 8
# Texts whose embeddings are kept in memory for samples to come; with a width of 768 they take 25 MB.
_REMEMBERED_TEXTS: Final = 8192


@dataclass
class Batch:
    """What was read since the batch before. Its images may still be on their way to pixels.

    Attributes:
        pixels: height x width x 3, uint8, of each row: what the model is given next, written by the decoding threads.
        size: rows that may be filled.
        rows: rows that are.
        images: its images to decode, with the names of their shards; those without a row only to learn whether they
            can be decoded.
        decoded: the decoding of the images. What is wrong with one of them is its ``error``.
        met: samples, and after the last one of a shard the shard's name.
    """

    pixels: Pixels
    size: int
    rows: int = 0
    images: list[tuple[str, ClipImage]] = field(default_factory=list)
    decoded: list[Future[None]] = field(default_factory=list)
    met: list[ClipSample | str] = field(default_factory=list)


@dataclass(frozen=True)
class SampleReader:
    """Prepares samples for the model, as described in :func:`~interleaved_assets.scoring.clip.stream.score_shards`.

    Attributes:
        scorer: tokenizes, and decodes.
        image_scores: gives a shard's stored image scores, for ``clip.prescreen``.
        free: pixels of batches that the device has read, to be used again.
        may_decode: while it is cleared no thread begins to decode an image.
        text: the token sequence of a key, remembered for samples to come.
    """

    scorer: ClipScorer
    image_scores: ImageScores | None
    free: deque[Pixels] = field(default_factory=deque)
    may_decode: threading.Event = field(default_factory=threading.Event)
    text: Callable[[bytes], ClipText] = field(default_factory=lambda: lru_cache(_REMEMBERED_TEXTS)(ClipText))

    def batches(self, shards: Iterable[tuple[str, Iterable[pa.Table]]], decoders: Workers) -> Iterator[Batch]:
        """The samples of all shards in batches of as many images as the model takes at once, the last one smaller.

        A shard's next table is read while the samples of the one before are prepared.
        """
        settings = self.scorer.settings
        together = 1 if self.scorer.on_device is None else _DECODED_TOGETHER
        group: list[ClipImage] = []
        batch = self._new_batch()

        def decode() -> None:
            if group:
                batch.decoded.append(decoders.submit(self._decode, group.copy(), batch.pixels))
                group.clear()

        for name, tables in shards:
            left_out: dict[tuple[str, int], str] = {}
            if self.image_scores is not None and settings.prescreen.is_on:
                left_out = prescreened(self.image_scores(name), settings.prescreen)
            for table in prefetch(tables):
                for sample in samples_of(table):
                    to_decode = self._prepare(sample, left_out)
                    batch.met.append(sample)
                    is_embedded = bool(sample.texts or settings.heads or settings.keep_embeddings)
                    for image in to_decode:
                        if is_embedded:
                            image.row = batch.rows
                            batch.rows += 1
                        batch.images.append((name, image))
                        group.append(image)
                        if len(group) == together:
                            decode()
                        if max(batch.rows, len(batch.images) - batch.rows) >= batch.size:
                            decode()
                            yield batch
                            batch = self._new_batch()
                    if len(batch.met) >= batch.size * _SAMPLES_PER_ROW:
                        decode()
                        yield batch
                        batch = self._new_batch()
            batch.met.append(name)
        decode()
        yield batch

    def _new_batch(self) -> Batch:
        embedder = self.scorer.embedder
        return Batch(self.free.popleft() if self.free else embedder.pixel_buffer(), embedder.batch_size)

    def _prepare(self, sample: ClipSample, left_out: dict[tuple[str, int], str]) -> list[ClipImage]:
        """The images to decode; where there are any the sample's texts are tokenized."""
        for image in sample.images:
            image.error = image.error or left_out.get((sample.sample_id, image.position))
            if image.error is not None:
                image.data = b""
        to_decode = [image for image in sample.images if image.error is None]
        for image in to_decode:
            image.is_pending = True
        for _, text in sample.texts if to_decode else ():
            # texts that the model cannot tell apart count as equal
            sample.pieces.append([self.text(tokens.tobytes()) for tokens in self.scorer.tokenizer(text)])
        return to_decode

    def _decode(self, images: list[ClipImage], pixels: Pixels) -> None:
        """Decode images into their rows of a batch; those that the device leaves out, or all, as without a device."""
        self.may_decode.wait()
        on_device = self.scorer.on_device
        found = [None] * len(images) if on_device is None else on_device([image.data for image in images])
        for image, decoded in zip(images, found, strict=True):
            try:
                if decoded is None:
                    decoded = self.scorer.preprocess(image.data)
                if image.row is not None:
                    pixels[image.row] = decoded
            except ImageError as error:
                image.error = error.error
            image.data = b""
