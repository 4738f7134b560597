"""Inputs of the loss cases, made with the standard library and Pillow, and functions that read the outputs."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image

from benchmarks.peer_loss_sides import Rows, Side

Members = dict[str, bytes | dict[str, Any]]


class Outcome(NamedTuple):
    """Whether data was lost, and the observation as a phrase for a table cell."""

    lost: bool
    seen: str


Case = Callable[[Side, Path], Outcome]


def make_tar(path: Path, members: Members, mode: str = "w") -> Path:
    """A tar of the members; a dict becomes JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            data = json.dumps(content).encode() if isinstance(content, dict) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def picture(number: int = 0, size: tuple[int, int] = (48, 32)) -> Image.Image:
    """A noisy picture that depends on the number."""
    width, height = size
    noise = np.random.default_rng(number).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def documents(*payloads: dict[str, Any]) -> Members:
    """Members ``doc0.json``, ``doc1.json``, … with one text each unless they bring their own."""
    return {
        f"doc{number}.json": {"texts": [f"text {number}"], "images": [None], **payload}
        for number, payload in enumerate(payloads)
    }


def image_document(**images: bytes) -> Members:
    """One document ``doc`` whose images are members ``<name>.png``."""
    names = [f"{name}.png" for name in images]
    payload = {"texts": ["some words", *[None] * len(names)], "images": [None, *names]}
    return {"doc.json": payload, **dict(zip(names, images.values(), strict=True))}


def image_rows(rows: Rows) -> Rows:
    """The rows that are images."""
    return [row for row in rows if row["modality"] == "image"]


def tar_json(paths: list[Path]) -> list[dict[str, Any]]:
    """The JSON members of tars, in order."""
    found = []
    for path in paths:
        with tarfile.open(path) as tar:
            found += [json.load(tar.extractfile(name)) for name in tar.getnames() if name.endswith(".json")]
    return found


def attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """The result of an action, or None and its error; cases observe failures, so any error counts."""
    try:
        return action(), ""
    except Exception as error:  # noqa: BLE001  # the failure is the observation
        return None, f"{type(error).__name__}: {str(error).splitlines()[0].partition('. ')[0]}"


def members_of(paths: list[Path]) -> dict[str, bytes]:
    """The members of tars by name."""
    found = {}
    for path in paths:
        with tarfile.open(path) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}
    return found


def rows_with_gaps() -> pa.Table:
    """Two documents in non-alphabetical order, positions with gaps, and a document with metadata only."""
    rows = [("b", -1, None), ("b", 1, "one"), ("b", 4, "four"), ("a", -1, None), ("a", 0, "zero"), ("empty", -1, None)]
    return pa.table(
        {
            "sample_id": [row[0] for row in rows],
            "position": pa.array([row[1] for row in rows], pa.int32()),
            "modality": ["metadata" if row[1] == -1 else "text" for row in rows],
            "content_type": ["application/json" if row[1] == -1 else "text/plain" for row in rows],
            "text_content": pa.array([row[2] for row in rows], pa.string()),
            "binary_content": pa.nulls(len(rows), pa.large_binary()),
            "source_ref": pa.nulls(len(rows), pa.string()),
            "materialize_error": pa.nulls(len(rows), pa.string()),
        }
    )
