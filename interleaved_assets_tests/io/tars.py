"""Small tars for the tests of reading and writing them."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from interleaved_assets.io.storage.limits import LIMITS
from interleaved_assets.io.tar.reader import read_tar_shard

Content = bytes | Mapping[str, Any]


def pack(members: Iterable[tuple[str, Content]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of files in the order given; a mapping becomes JSON."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for name, content in members:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def write_tar(path: Path, *members: tuple[str, Content]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(members))
    return str(path)


def read(uri: str, **options: Any) -> pa.Table:
    """All rows of a tar, image bytes included, unless the options say otherwise; limits are options by their names."""
    limits = LIMITS._replace(**{name: options.pop(name) for name in LIMITS._fields if name in options})
    (table,) = read_tar_shard(uri, **{"materialize": True, "limits": limits, **options})
    return table


def rows(uri: str, **options: Any) -> list[dict[str, Any]]:
    return read(uri, **options).to_pylist()


def members_of(path: str | Path) -> dict[str, bytes]:
    """Names and contents of a tar's files, as the standard library reads them."""
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar if info.isreg()}  # type: ignore[union-attr]


def picture(seed: int, width: int = 8, height: int = 6) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def tiff(*images: Image.Image, **options: Any) -> bytes:
    return encoded(images[0], "TIFF", save_all=True, append_images=images[1:], **options)


def pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        assert getattr(image, "n_frames", 1) == 1
        return image.convert("RGB").tobytes()


def frames_document(*tokens: str | None, **fields: Any) -> dict[str, Any]:
    return {"texts": [None if token else "some text" for token in tokens], "images": list(tokens), **fields}


def errors(uri: str, **options: Any) -> list[str | None]:
    return [row["materialize_error"] for row in rows(uri, **options)]
