"""Reads back the output of a run without the code of either contestant: rows, and a digest of each image's pixels."""

import hashlib
import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image, ImageSequence


@dataclass(frozen=True)
class Written:
    """Content of a folder of outputs."""

    samples: int
    texts: int
    pixels: Counter[str]
    """Number of images by digest of size and RGB pixels."""

    @property
    def images(self) -> int:
        """Number of images with bytes that decode."""
        return self.pixels.total()


def expected(tars: list[Path], lowest: float, highest: float) -> Written:
    """Content of the inputs without images outside the aspect ratios."""
    samples = texts = 0
    pixels: Counter[str] = Counter()
    for payload, members in _documents(tars):
        samples += 1
        texts += sum(text is not None for text in payload["texts"])
        for data in members.values():
            with Image.open(io.BytesIO(data)) as tiff:
                for frame in ImageSequence.Iterator(tiff):
                    if lowest <= frame.width / frame.height <= highest:
                        pixels[_digest(frame)] += 1
    return Written(samples, texts, pixels)


def written(folder: Path, form: str) -> Written:
    """Content of the outputs of one run; ``form`` is ``wds`` or ``parquet``."""
    samples = texts = 0
    pixels: Counter[str] = Counter()
    if form == "parquet":
        for path in folder.rglob("*.parquet"):
            table = pq.read_table(path, columns=["sample_id", "modality", "binary_content"])
            samples += len(table["sample_id"].unique())
            texts += table["modality"].to_pylist().count("text")
            for data in table["binary_content"]:
                if data.is_valid:
                    pixels[_image_digest(data.as_buffer())] += 1
        return Written(samples, texts, pixels)
    for payload, members in _documents(list(folder.rglob("*.tar"))):
        samples += 1
        texts += sum(text is not None for text in payload["texts"])
        for token in payload["images"]:
            if token is not None:
                pixels[_image_digest(members[token])] += 1
    return Written(samples, texts, pixels)


def _documents(tars: list[Path]) -> Iterator[tuple[dict, dict[str, bytes]]]:
    """JSON and other members, by name, of every document; a document's members share the name up to the first dot."""
    for path in tars:
        documents: dict[str, tuple[list[dict], dict[str, bytes]]] = {}
        with tarfile.open(path) as tar:
            for member in tar:
                payloads, members = documents.setdefault(member.name.split(".")[0], ([], {}))
                stream = tar.extractfile(member)
                assert stream is not None, f"{member.name} in {path} is no file"
                if member.name.endswith(".json"):
                    payloads.append(json.load(stream))
                else:
                    members[member.name] = stream.read()
        for payloads, members in documents.values():
            yield payloads[0], members


def _image_digest(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        return _digest(image)


def _digest(image: Image.Image) -> str:
    pixels = image.convert("RGB")
    return hashlib.blake2b(pixels.tobytes(), digest_size=12, key=repr(pixels.size).encode()).hexdigest()
