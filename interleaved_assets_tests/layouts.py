"""Small shards in the layouts of other data sets, which the project has to refuse, as members of a tar."""

import json
from collections.abc import Iterable

import cv2
import numpy as np

from interleaved_assets_tests.io.tars import Content, pack

SAMPLES = 20


def jpeg(seed: int) -> bytes:
    """A JPEG of noise, about 4 kB."""
    pixels = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8)
    return cv2.imencode(".jpg", pixels)[1].tobytes()


def img2dataset() -> Iterable[tuple[str, Content]]:
    """What img2dataset writes: an image, its caption and a JSON about both for each key."""
    for number in range(SAMPLES):
        key = f"{number:09}"
        yield f"{key}.jpg", jpeg(number)
        yield f"{key}.txt", b"a caption"
        yield f"{key}.json", {"caption": "a caption", "url": "https://example.org/a.jpg", "key": key, "width": 64}


def image_and_caption() -> Iterable[tuple[str, Content]]:
    """An image and its caption for each key, and no JSON."""
    for number in range(SAMPLES):
        yield f"{number:06}.jpg", jpeg(number)
        yield f"{number:06}.txt", b"a caption"


def mmc4() -> Iterable[tuple[str, Content]]:
    """MMC4: all documents as lines of one JSONL, which names the images in image_info."""
    lines = []
    for number in range(SAMPLES):
        yield f"images/{number}.jpg", jpeg(number)
        about = [{"image_name": f"{number}.jpg", "matched_text_index": 1, "matched_sim": 0.29}]
        lines.append({"text_list": ["one two", "three four"], "image_info": about, "url": "https://example.org"})
    yield "docs_shard_0_v2.jsonl", "\n".join(map(json.dumps, lines)).encode()


def mmc4_documents() -> Iterable[tuple[str, Content]]:
    """MMC4 as a JSON for each document; texts come with ``reading.texts_field = "text_list"``, images do not."""
    for number in range(SAMPLES):
        yield f"{number}.jpg", jpeg(number)
        yield f"{number}.json", {"text_list": ["one two"], "image_info": [{"image_name": f"{number}.jpg"}]}


def metadata_only() -> Iterable[tuple[str, Content]]:
    """Documents that have neither texts nor images."""
    for number in range(SAMPLES):
        yield f"{number}.json", {"url": f"https://example.org/{number}"}


FOREIGN = {layout.__name__: layout for layout in (img2dataset, image_and_caption, mmc4, mmc4_documents, metadata_only)}


def foreign_tar(name: str) -> bytes:
    """A tar in the layout of that name."""
    return pack(FOREIGN[name]())
