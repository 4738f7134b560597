"""Shards to batches of pixels: samples read and tokenized in one thread, their images decoded in several."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.workers import Workers, run_task
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.samples import ClipImage, ClipSample, ShardScores, samples_of
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.containers import Buffer

Pixels = NDArray[np.uint8]
Tokens = NDArray[np.int32]

ImageScores = Callable[[str], pa.Table]
"""Given a shard's name, its image scores, for ``clip.prescreen``."""

OnDevice = Callable[[Sequence[Buffer]], list[Pixels | None]]
"""Pixels of several images, height x width x 3, decoded on the device; None for one that the host has to decode."""

# Images that the device decodes in one call.
_DECODED_TOGETHER: Final = 32
# A batch with few images ends after so many samples for each row, so that it is bounded too.
_SAMPLES_PER_ROW: Final = 8


@dataclass(frozen=True)
class PendingImage:
    """An image that a thread decodes. ``decoded`` raises the ImageError of an image that cannot be."""

    shard: ShardScores
    sample: ClipSample
    image: ClipImage
    decoded: Future[None]


@dataclass
class Batch:
    """What was read since the batch before. Its images may still be on their way to pixels.

    Attributes:
        pixels: rows x height x width x 3, uint8: what the model is given next, written by the decoding threads.
        images: the images of the first rows.
        checked: images that are decoded only to learn whether they can be, since nothing is asked of their embeddings.
        begun: shards met.
        samples: samples met, with their shards.
        ended: shards of which all samples have been met.
    """

    pixels: Pixels
    images: list[PendingImage] = field(default_factory=list)
    checked: list[PendingImage] = field(default_factory=list)
    begun: list[ShardScores] = field(default_factory=list)
    samples: list[tuple[ShardScores, ClipSample]] = field(default_factory=list)
    ended: list[ShardScores] = field(default_factory=list)


class PixelBuffers:
    """Buffers for batches of pixels, used again and again: as many as are in use at once.

    Args:
        allocate: makes a buffer, rows x height x width x 3, uint8.
    """

    def __init__(self, allocate: Callable[[], Pixels]) -> None:
        self._allocate = allocate
        self._free: SimpleQueue[Pixels] = SimpleQueue()

    def take(self) -> Pixels:
        """A buffer, with whatever was in it."""
        try:
            return self._free.get_nowait()
        except Empty:
            return self._allocate()

    def give_back(self, buffer: Pixels) -> None:
        """Make a buffer that the device has read available again."""
        self._free.put(buffer)


class _ForDevice:
    """Images that wait until there are enough of them for one call of the device's decoder.

    Args:
        submit: starts to decode a group: the future, the bytes and the row in the batch of each image.
    """

    def __init__(self, submit: Callable[[list[tuple[Future[None], Buffer, Pixels | None]]], object]) -> None:
        self._submit = submit
        self._group: list[tuple[Future[None], Buffer, Pixels | None]] = []

    def add(self, data: Buffer, row: Pixels | None) -> Future[None]:
        """An image for the group, which starts once it is full."""
        future: Future[None] = Future()
        self._group.append((future, data, row))
        if len(self._group) >= _DECODED_TOGETHER:
            self.flush()
        return future

    def flush(self) -> None:
        """Start a group that is not full."""
        group, self._group = self._group, []
        if group:
            self._submit(group)


@dataclass(frozen=True)
class SampleReader:
    """Prepares samples for the model, as described in :func:`~interleaved_assets.scoring.clip.scores.score_shards`.

    Attributes:
        schema: of the score tables.
        head_columns: the columns that heads fill.
        tokenizer: a text to its token sequences.
        preprocess: an image's bytes to pixels, height x width x 3; an ImageError where it cannot.
        image_scores: gives a shard's stored image scores, for ``clip.prescreen``.
        on_device: decodes several images at once on the model's device; None: ``preprocess`` decodes them all.
        may_decode: while it is cleared no thread begins to decode an image.
    """

    settings: ClipSettings
    schema: pa.Schema
    head_columns: Sequence[str]
    tokenizer: Callable[[str], list[Tokens]]
    preprocess: Callable[[Buffer], Pixels]
    image_scores: ImageScores | None = None
    on_device: OnDevice | None = None
    may_decode: threading.Event = field(default_factory=threading.Event)

    def batches(
        self,
        shards: Iterable[tuple[str, Iterable[pa.Table]]],
        decoders: Workers,
        buffers: PixelBuffers,
        batch_size: Callable[[], int],
    ) -> Iterator[Batch]:
        """The samples of all shards in batches of ``batch_size()`` images, the last one smaller.

        A shard's next table is read while the samples of the one before are prepared.
        """
        for_device = _ForDevice(lambda group: decoders.submit(self._decode_together, group))
        batch, size = Batch(buffers.take()), batch_size()
        for name, tables in shards:
            left_out: dict[tuple[str, int], str] = {}
            if self.image_scores is not None and self.settings.prescreen.is_on:
                left_out = prescreened(self.image_scores(name), self.settings.prescreen)
            shard = ShardScores(name, self.schema, self.head_columns)
            batch.begun.append(shard)
            for table in prefetch(tables):
                for sample in samples_of(table):
                    to_decode = self._prepare(sample, left_out)
                    shard.samples.append(sample)
                    batch.samples.append((shard, sample))
                    is_embedded = bool(sample.texts or self.head_columns or self.settings.keep_embeddings)
                    for image, data in to_decode:
                        images = batch.images if is_embedded else batch.checked
                        row = batch.pixels[len(images)] if is_embedded else None
                        decoded = (
                            decoders.submit(self._decode, data, row)
                            if self.on_device is None
                            else for_device.add(data, row)
                        )
                        images.append(PendingImage(shard, sample, image, decoded))
                        if len(images) >= size:
                            for_device.flush()
                            yield batch
                            batch, size = Batch(buffers.take()), batch_size()
                    if len(batch.samples) >= size * _SAMPLES_PER_ROW:
                        for_device.flush()
                        yield batch
                        batch, size = Batch(buffers.take()), batch_size()
            batch.ended.append(shard)
        for_device.flush()
        yield batch

    def _prepare(self, sample: ClipSample, left_out: dict[tuple[str, int], str]) -> list[tuple[ClipImage, Buffer]]:
        """The images to decode, with their bytes; where there are any the sample's texts are tokenized."""
        to_decode = []
        for image in sample.images:
            if image.error is None:
                image.error = left_out.get((sample.sample_id, image.position))
            if image.error is None and image.data is not None:
                to_decode.append((image, image.data))
            image.data = None
        sample.waiting = len(to_decode)
        for _, text in sample.texts if to_decode else ():
            # texts that the model cannot tell apart count as equal
            sequences = {tokens.astype(np.int32).tobytes(): tokens for tokens in self.tokenizer(text)}
            sample.pieces.append(list(sequences))
            sample.tokens |= sequences
        return to_decode

    def _decode(self, data: Buffer, row: Pixels | None) -> None:
        self.may_decode.wait()
        pixels = self.preprocess(data)
        if row is not None:
            row[...] = pixels

    def _decode_together(self, group: list[tuple[Future[None], Buffer, Pixels | None]]) -> None:
        """Decode a group on the device; an image that it leaves out is decoded as without a device."""
        self.may_decode.wait()
        found: Future[list[Pixels | None]] = Future()
        run_task(found, self.on_device, ([data for _, data, _ in group],))  # type: ignore[arg-type]  # not None here
        for index, (future, data, row) in enumerate(group):
            run_task(future, self._take_decoded, (found, index, data, row))

    def _take_decoded(self, found: Future[list[Pixels | None]], index: int, data: Buffer, row: Pixels | None) -> None:
        pixels = found.result()[index]
        if pixels is None:
            pixels = self.preprocess(data)
        if row is not None:
            row[...] = pixels
