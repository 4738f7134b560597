"""A check that ``webdataset`` reads from a tar the samples that were written to it.

The tar is read once from the storage, and two things are shown:

* The storage holds every byte that the writer wrote: the XXH3 of the whole tar is compared with the one that was
  computed while it was written. This covers other fields of the JSON and members that no document names.
* A loader finds the rows in these bytes: keys, order, texts, images and positions. The expected values are noted from
  the rows, before the writer turns them into documents and members, so that this does not depend on how the writer
  names, orders and encodes them. Since the bytes are known to be the written ones, an image is compared by its length
  and 64-bit XXH3. These tell a wrong, cut or exchanged image apart.
"""

import hashlib
import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import xxhash

from interleaved_assets.io.rows.batches import binary_views
from interleaved_assets.io.storage import StorageOptions, open_input, remove_file, storage_errors
from interleaved_assets.io.tar.layout import EXACT_FIELD, member_key
from interleaved_assets.model.errors import ReadBackError
from interleaved_assets.pipeline.run.counts import BYTES_READ, IMAGES_READ, SAMPLES_READ
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.stages.webdataset_samples import webdataset_samples

_TEXT, _IMAGE = b"t", b"i"
_KINDS: Final = {"text": _TEXT, "image": _IMAGE}
_BLOCK: Final = 2**20
_CANNOT_BE_READ: Final = (tarfile.TarError, ValueError, KeyError, TypeError, EOFError)
"""Errors of the tar, of its samples and of malformed documents. Errors of the storage are not among them."""


class _Item(NamedTuple):
    """A text or image of a sample. Sorted by position; at the same position, a text comes before an image."""

    position: int
    order: int
    kind: bytes
    checksum: bytes
    """Length and 64-bit XXH3 of the content, 16 bytes."""

    @classmethod
    def of(cls, position: int, kind: bytes, content: bytes | memoryview) -> "_Item":
        checksum = len(content).to_bytes(8, "little") + xxhash.xxh3_64_digest(content)
        return cls(position, int(kind == _IMAGE), kind, checksum)


class _Expected(NamedTuple):
    """One sample: its key in the tar, and two hashes of 32 bytes in place of its contents, to save memory."""

    key: str
    images: int
    contents: bytes
    """SHA-256 of the checksums of texts and images in order."""
    places: bytes
    """SHA-256 of these checksums with the positions."""

    @classmethod
    def of(cls, key: str, items: Sequence[_Item]) -> "_Expected":
        contents, places = hashlib.sha256(), hashlib.sha256()
        for item in sorted(items):
            contents.update(item.kind + item.checksum)
            places.update(item.kind + item.checksum + item.position.to_bytes(8, "little", signed=True))
        images = sum(item.kind == _IMAGE for item in items)
        return cls(key, images, contents.digest(), places.digest())


class WrittenSamples:
    """The samples that a tar must contain, collected while it is written; about 300 bytes of memory per sample."""

    def __init__(self) -> None:
        self._samples: list[_Expected] = []

    @property
    def keys(self) -> list[str]:
        """The keys of the samples in the tar, in order."""
        return [sample.key for sample in self._samples]

    def add(self, table: pa.Table) -> None:
        """Add the samples of ``table``, which has all rows of each of them."""
        ids = table["sample_id"].to_pylist()
        positions = table["position"].to_pylist()
        kinds = [_KINDS.get(modality) for modality in table["modality"].to_pylist()]
        texts, images = table["text_content"].to_pylist(), binary_views(table["binary_content"])
        found: dict[str, list[_Item]] = defaultdict(list)
        for row, (sample_id, position, kind) in enumerate(zip(ids, positions, kinds, strict=True)):
            items = found[sample_id]
            if kind == _TEXT and texts[row] is not None:
                items.append(_Item.of(position, _TEXT, texts[row].encode()))
            elif kind == _IMAGE and (content := images[row]) is not None:
                items.append(_Item.of(position, _IMAGE, content))
        self._samples += [_Expected.of(member_key(sample_id), items) for sample_id, items in found.items()]

    def compare(
        self, tar: OutputFile, storage_options: StorageOptions, *, all_tars: Sequence[OutputFile] = ()
    ) -> dict[str, int]:
        """Read ``tar`` as ``webdataset`` does, sample by sample; return the number of samples, images and bytes read.

        A tar with the bytes that were written, but other samples, is deleted, so that no training can use it. If the
        final tar is split, the other tars of the shard are deleted too: ``all_tars``, from the last to the first. Then,
        and if the bytes differ, ReadBackError is raised.
        """
        with open_input(tar.uri, storage_options) as file:
            stream = _Hashed(file, tar.uri)
            problem = self._problem(stream)
            while stream.read(_BLOCK):
                pass  # to hash what follows the samples too
        if stream.hexdigest != tar.checksum:
            raise ReadBackError(
                f"{tar.uri} does not hold the {tar.size} bytes that were written to it: it was replaced meanwhile, or "
                "the storage damaged it. Materialize the shard again, and see that no other run writes to it."
            )
        if problem is not None:
            for one in reversed(all_tars or [tar]):
                remove_file(one.uri, storage_options)
            what = "The tar was" if len(all_tars) < 2 else f"All {len(all_tars)} tars of the shard were"
            raise ReadBackError(
                f"{tar.uri}: the samples that webdataset reads differ from those written: {problem}. {what} deleted; "
                "the rows are still in the filtered Parquet."
            )
        images = sum(sample.images for sample in self._samples)
        return {SAMPLES_READ: len(self._samples), IMAGES_READ: images, BYTES_READ: stream.size}

    def _problem(self, stream: "_Hashed") -> str | None:
        number = 0
        try:
            for number, (key, members) in enumerate(webdataset_samples(stream), start=1):
                if number > len(self._samples):
                    return f"it has more samples than were written, the first is {key!r}"
                if problem := _difference(self._samples[number - 1], key, members):
                    return f"sample {number}, {self._samples[number - 1].key!r}: {problem}"
        except _CANNOT_BE_READ as error:
            return f"after sample {number}: {type(error).__name__}: {next(iter(error.args), '')}"
        if number < len(self._samples):
            return f"{len(self._samples)} samples were written and {number} were read"
        return None


def _difference(expected: _Expected, key: str, members: Mapping[str, bytes]) -> str | None:
    """Return the difference between a sample that was read and the one written; None if they are equal."""
    if key != expected.key:
        return f"sample {key!r} was read instead"
    if "json" not in members:
        return "it has no JSON"
    document = json.loads(members["json"])
    items: list[_Item] = []
    for place, (text, token) in enumerate(zip(document["texts"], document["images"], strict=True)):
        if text is not None:
            items.append(_Item.of(place, _TEXT, text.encode()))
        if token is not None:
            # webdataset lower-cases what follows the key
            content = members.get(token.removeprefix(f"{key}.").lower())
            if content is None:
                return f"its JSON names the image {token!r}, which is missing"
            items.append(_Item.of(place, _IMAGE, content))
    found = _Expected.of(key, items)
    if found.images != expected.images:
        return f"{expected.images} images were written and {found.images} were read"
    if found.contents != expected.contents:
        return "texts or bytes of images differ, or their order"
    # if gaps between positions are too wide for lists, the lists have no gaps, and EXACT_FIELD has the positions
    is_dense = len(items) == len(document["texts"]) and EXACT_FIELD in document
    return None if found.places == expected.places or is_dense else "texts or images stand at other positions"


class _Hashed:
    """A stream that hashes the bytes read from it. ``seek`` only goes forwards, and reads the bytes in between."""

    def __init__(self, file: BinaryIO, uri: str) -> None:
        self._file, self._uri, self._digest = file, uri, xxhash.xxh3_128()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, or all that are left."""
        with storage_errors(self._uri, "read"):
            data = self._file.read(size)
        self._digest.update(data)
        self.size += len(data)
        return data

    def tell(self) -> int:
        return self.size

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Read up to ``position``, or to the end of the file. Only a header with a negative size asks to go back."""
        assert whence == os.SEEK_SET
        if position < self.size:
            raise ValueError(f"a member before byte {self.size} follows it")
        while position > self.size and self.read(min(position - self.size, _BLOCK)):
            pass
        return self.size

    @property
    def hexdigest(self) -> str:
        """XXH3 of the bytes read so far, as 32 hex digits."""
        return self._digest.hexdigest()
