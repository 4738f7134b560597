"""Embeddings kept from one run to the next, found again by the hash of the image or the tokens they are of.

A cache is a folder, local or on any filesystem fsspec knows, with one folder a model in it (its fingerprint) and in
there segments that are written once and never changed:

    <cache_dir>/<model fingerprint>/<id>.rows    embeddings, float32, little endian, n x width
                                    <id>.keys    their keys, 16 bytes each, in the same order

Why so: workers on several machines write at once without a lock, since no two write the same name unless it is the same
content, and on an object store a shard costs two uploads, where an object for each embedding would cost more than
computing it anew. The price is that all keys are read when a run starts: 16 bytes an embedding. The ``.keys`` file is
written last, so that a segment is whole or not there. To empty a cache, delete the folder.
"""

import hashlib
import logging
from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.io.storage import StorageOptions, atomic_output, filesystem, join, open_input, storage_errors
from interleaved_assets.model.errors import StorageError
from interleaved_assets.scoring.size import Buffer

logger = logging.getLogger(__name__)

KEY_BYTES: Final = 16
_SEGMENTS_IN_MEMORY: Final = 8


def image_key(data: Buffer) -> bytes:
    """The key of an image: by the bytes of its file."""
    return _key(b"image:", data)


def text_key(tokens: NDArray[np.int32]) -> bytes:
    """The key of a text or window: by its tokens, so that texts the model cannot tell apart count as equal."""
    return _key(b"tokens:", tokens.astype("<i4").tobytes())


class EmbeddingCache:
    """Embeddings of one model in a folder: those that are there when it is made are read, new ones are added.

    For one thread that reads and one that adds.
    """

    def __init__(self, cache_dir: str, fingerprint: str, width: int, storage_options: StorageOptions = None) -> None:
        """Read the keys of all segments.

        Raises:
            StorageError: the folder cannot be read.
        """
        self._folder, self._width, self._options = join(cache_dir, fingerprint), width, storage_options
        self._in_memory: OrderedDict[int, NDArray[np.float32] | None] = OrderedDict()
        self._new: dict[bytes, NDArray[np.float32]] = {}
        self._segments, keys = self._read_keys()
        # sorted by the first half of the key; segment and row say where the embedding is
        sizes = [len(part) for part in keys]
        halves = np.concatenate([np.zeros((0, 2), np.uint64), *keys])
        order = np.argsort(halves[:, 0], kind="stable")
        self._first, self._second = halves[order, 0], halves[order, 1]
        self._segment = np.repeat(np.arange(len(sizes)), sizes)[order]
        self._row = np.concatenate([np.zeros(0, np.int64), *map(np.arange, sizes)])[order]

    def __len__(self) -> int:
        """Embeddings that were there when it was made."""
        return len(self._first)

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """The embedding that was stored under ``key``, float32 of the model's width; None where there is none."""
        first, second = np.frombuffer(key, "<u8")
        at = int(np.searchsorted(self._first, first))
        while at < len(self._first) and self._first[at] == first:
            if self._second[at] == second:
                rows = self._rows(int(self._segment[at]))
                if rows is not None:
                    return rows[self._row[at]]
            at += 1
        return None

    def put(self, key: bytes, embedding: NDArray[np.float32]) -> None:
        """Take an embedding into the next segment."""
        self._new[key] = embedding

    def flush(self) -> None:
        """Write the next segment. Where that fails a warning is logged: scores do not depend on it."""
        if not self._new:
            return
        keys, rows = b"".join(self._new), np.stack(list(self._new.values())).astype("<f4")
        self._new = {}
        name = join(self._folder, hashlib.sha256(keys).hexdigest()[:32])
        try:
            for suffix, content in ((".rows", rows.tobytes()), (".keys", keys)):
                with atomic_output(name + suffix, self._options, hashed=False) as output:
                    output.write(content)
        except StorageError as error:
            logger.warning("embeddings were not kept in the cache: %s", error)

    def _read_keys(self) -> tuple[list[str], list[NDArray[np.uint64]]]:
        """Names of the segments and their keys, n x 2."""
        with storage_errors(self._folder, "read the cache in"):
            fs, folder = filesystem(self._folder, self._options)
            fs.invalidate_cache(folder)
            found = sorted(path for path in fs.find(folder) if path.endswith(".keys"))
            # a deletion under way may take a file in between
            contents = fs.cat(found, on_error="omit") if found else {}
        segments, keys = [], []
        for path in found:
            content = contents.get(path)
            if content and len(content) % KEY_BYTES == 0:
                segments.append(join(self._folder, path.rpartition("/")[2].removesuffix(".keys")))
                keys.append(np.frombuffer(content, "<u8").reshape(-1, 2))
        return segments, keys

    def _rows(self, segment: int) -> NDArray[np.float32] | None:
        """A segment's embeddings; None where it has gone or is damaged. The last few used stay in memory."""
        if segment not in self._in_memory:
            uri = self._segments[segment] + ".rows"
            rows = None
            try:
                with open_input(uri, self._options) as file:
                    content = file.read()
                if len(content) == 4 * self._width * np.count_nonzero(self._segment == segment):
                    rows = np.frombuffer(content, "<f4").reshape(-1, self._width)
                else:
                    logger.warning("cache segment %s has the wrong size and is passed over; delete it", uri)
            except StorageError as error:
                logger.warning("a cache segment is passed over: %s", error)
            self._in_memory[segment] = rows
            if len(self._in_memory) > _SEGMENTS_IN_MEMORY:
                self._in_memory.popitem(last=False)
        self._in_memory.move_to_end(segment)
        return self._in_memory[segment]


def _key(kind: bytes, content: Buffer) -> bytes:
    digest = hashlib.sha256(kind)
    digest.update(content)
    return digest.digest()[:KEY_BYTES]
