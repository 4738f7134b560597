"""A small shard file of every format, each with one document of a text and an image that no filter drops."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from interleaved_assets.io import read_shard
from interleaved_assets_tests.documents import document, sharp_image, write_shard
from interleaved_assets_tests.io.pdfs import jpeg_image, shown, text, write_pdf
from interleaved_assets_tests.io.warcs import image as warc_image
from interleaved_assets_tests.io.warcs import page as warc_page
from interleaved_assets_tests.io.warcs import write_warc
from interleaved_assets_tests.io.web_documents.stores import image_url, lines, packed, write_store

WORDS: Final = "Words enough to make this paragraph the main content of the page, and to be a text. " * 3
_URLS: Final = {"url": "https://a.example/", "texts": [WORDS, None], "images": [None, image_url(1)]}


def _tar(path: Path) -> None:
    write_shard(path, {"doc": document(WORDS, sharp_image(1))})


def _parquet(path: Path) -> None:
    tar = path.parent.parent / "source.tar"
    _tar(tar)
    pq.write_table(pa.concat_tables(read_shard(str(tar))), path)


def _urls(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([_URLS]), path)


def _jsonl(path: Path) -> None:
    path.write_bytes(packed(lines(_URLS), path.suffix))


def _warc(path: Path) -> None:
    page = warc_page("https://a.example/", f"<main><p>{WORDS}</p><img src='/a.png'></main>")
    image = warc_image("https://a.example/a.png", sharp_image(1))
    write_warc(path, [page, image], compressed=path.suffix == ".gz")


def _pdf(path: Path) -> None:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(sharp_image(1))).convert("RGB").save(buffer, "JPEG", quality=95)
    write_pdf(
        path,
        [text(72, 700, *WORDS.split(". ")) + shown("I", 72, 400, 200, 200)],
        [("I", jpeg_image(buffer.getvalue()))],
    )


SAMPLES: Final[dict[str, Callable[[Path], None]]] = {
    "one.tar": _tar,
    "one.parquet": _parquet,
    "urls.parquet": _urls,
    "one.jsonl": _jsonl,
    "one.jsonl.gz": _jsonl,
    "one.jsonl.zst": _jsonl,
    "one.jsonl.zip": _jsonl,
    "one.warc": _warc,
    "one.warc.gz": _warc,
    "one.pdf": _pdf,
}
"""The writer of each sample, by the name of its file."""


def write_samples(folder: Path) -> None:
    """Write all samples into ``folder``, and the store of their images beside it as ``store``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_store(folder.parent / "store", [1])
    for name, write in SAMPLES.items():
        write(folder / name)
