"""Small raw shards for the tests: documents with texts and images whose scores are known."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from interleaved_assets.pipeline.stages.dag import downstream_of, rows_input, stage_dag
from interleaved_assets.settings import Settings, load_settings

STAGES = tuple(stage_dag(Settings()))
"""The stages of a project with default settings."""


def stages_before(name: str) -> tuple[str, ...]:
    """Those of :data:`STAGES` that come before one of them."""
    return STAGES[: STAGES.index(name)]


def with_downstream(name: str, settings: Settings | None = None) -> list[str]:
    """A stage and those that read its output, directly or through others, in order."""
    stages = stage_dag(settings or Settings())
    return [one for one in stages if one in {name, *downstream_of(name, stages)}]


ROWS = rows_input(stages_before("filtered")) or ""
"""The stage whose rows are scored and selected."""


def refuse_listing(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Listing these folders fails as it does for a user without permission; tests may run as root."""
    ls = LocalFileSystem.ls

    def refused(self: LocalFileSystem, path: str, *arguments: object, **named: object) -> object:
        if Path(path) in folders:
            raise PermissionError(13, "Permission denied", path)
        return ls(self, path, *arguments, **named)

    monkeypatch.setattr(LocalFileSystem, "ls", refused)


def sharp_image(seed: int, width: int = 64, height: int = 48) -> bytes:
    """A PNG of noise: sharpness in the tens of thousands."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


def blurred_image(level: int = 128, width: int = 64, height: int = 48) -> bytes:
    """A PNG of one even colour: sharpness 0."""
    return cv2.imencode(".png", np.full((height, width, 3), level, np.uint8))[1].tobytes()


def document(*items: str | bytes, **fields: object) -> tuple[dict[str, object], list[bytes]]:
    """A document: texts and images in order, and its other JSON fields."""
    texts = [item if isinstance(item, str) else None for item in items]
    images = [item for item in items if isinstance(item, bytes)]
    return {"texts": texts, "images": [item if isinstance(item, bytes) else None for item in items], **fields}, images


def write_shard(path: Path, documents: Mapping[str, tuple[dict[str, object], Sequence[bytes]]]) -> Path:
    """A tar with ``<key>.json`` and ``<key>.<position>.png`` for each document; time stamps are 0.

    It is there at once, and so replaces another: a sensor that looks meanwhile does not see half of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(".unfinished")  # a name as long as can be has no room for an ending
    with tarfile.open(unfinished, "w") as tar:
        for key, (fields, _) in documents.items():
            names = []
            members = {}
            for position, image in enumerate(fields["images"]):  # type: ignore[arg-type]
                names.append(None if image is None else f"{key}.{position}.png")
                if image is not None:
                    members[names[-1]] = image
            body = json.dumps({**fields, "images": names}).encode()
            for name, content in {f"{key}.json": body, **members}.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return unfinished.replace(path)


def good_shard(path: Path, seed: int = 0) -> Path:
    """Three documents with four sharp images and one blurred; five texts."""
    return write_shard(
        path,
        {
            f"doc-{seed}-a": document("one two three", sharp_image(seed), "four", url="https://example.org/a"),
            f"doc-{seed}-b": document("five six", sharp_image(seed + 1), blurred_image(), year=2024),
            f"doc-{seed}-c": document(sharp_image(seed + 2), "seven", sharp_image(seed + 3), "eight nine"),
        },
    )


def good_and_damaged_shards(raw_root: Path) -> None:
    """The shards a, b and c, of which b is no tar."""
    for key in ("a", "c"):
        good_shard(raw_root / f"{key}.tar")
    (raw_root / "b.tar").write_bytes(b"no tar")


def project(folder: Path, text: str = "") -> Settings:
    """A project below ``folder``: raw shards in ``raw``, outputs in ``out``, and ``text`` in its settings file."""
    (folder / "raw").mkdir(exist_ok=True)
    file = folder / "interleaved.toml"
    file.write_text(f'[storage]\nraw_root = "raw"\noutput_root = "out"\n{text}')
    return load_settings(file)
