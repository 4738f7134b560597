"""The raw shards of the demo: a seeded data set in the forms of existing ones, with cases for every filter and check.

    mint/pdf-000.tar          MINT-1T PDF, uncompressed multi-frame TIFF; blurred and grey pictures
    mint/pdf-001.tar          MINT-1T PDF, JPEG inside TIFF; the filters of the demo drop nothing
    web/articles-000.tar      a file per picture (jpg, png, webp); portrait, landscape and very wide ones
    web/flyers-000.tar        QR codes on 2 % to 30 % of the area, upright and turned, and pictures without
    web/galleries-000.tar     nearly all pictures, nearly all text, only text
    web/pages-000.tar         spam, repetition, German, personal data, boilerplate: for filters and functions of texts
    crawl-2/captions-000.tar  captions that describe the picture, and captions of another picture
    crawl-2/mixed-keys.tar    keys, types and nulls that differ from document to document; equal stems in two folders
    mint/report.pdf           a printed report: texts around pictures, a table, and a page that is a scan without text
    crawl-2/archive.warc.gz   web pages with menus, footers and pictures, some of which the archive does not have
    crawl-2/damaged.tar       missing, undecodable and unreferenced members, broken JSON, a repeated id, a short TIFF

The JSON of each document in a tar explains its purpose under ``demo_note``.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from interleaved_assets.demo.damage import damaged_members
from interleaved_assets.demo.documents import DemoDocument, DemoMember, Item, file_members, pack_tar, tiff_members
from interleaved_assets.demo.pdf_report import pdf_report
from interleaved_assets.demo.pictures import Picture, blurred, flyer, grey, sharp, with_qr_code
from interleaved_assets.demo.prose import heading, paragraph, pick_topic
from interleaved_assets.demo.scenes import compose
from interleaved_assets.demo.web_archive import web_archive
from interleaved_assets.demo.web_pages import web_pages
from interleaved_assets.io.storage import atomic_output

SEED: Final = 20240611
LANDSCAPE: Final = (400, 300)
PORTRAIT: Final = (300, 400)
WIDE: Final = (900, 260)
_LANGUAGES: Final = ("en", "de", "fr", "es", "nl", "it")


def write_demo_shards(folder: Path | str) -> list[Path]:
    """Write the demo shards below ``folder`` and return their paths, sorted.

    The same library versions give the same bytes. A file with the same content is not written, so that its
    modification time stays; other files are not changed.
    """
    written = []
    for name, data in demo_shards():
        path = Path(folder) / name
        if not path.is_file() or path.read_bytes() != data:
            with atomic_output(str(path)) as out:
                out.write(data)
        written.append(path)
    return sorted(written)


def demo_shards() -> Iterator[tuple[str, bytes]]:
    """Yield name below the raw root and content of each shard, one shard at a time."""
    for name in SHARDS:
        yield name, demo_shard(name)


def demo_shard(name: str) -> bytes:
    """Return the content of the shard with this name below the raw root."""
    # each shard has its own generator, so that changing one shard does not change the bytes of others
    return SHARDS[name](np.random.default_rng([SEED, zlib.crc32(name.encode())]))


def _pdf_uncompressed(rng: np.random.Generator) -> Iterator[DemoMember]:
    for number in range(12):
        pictures = [sharp(rng, *_size(rng, 0.8)) for _ in range(2 + number % 2)]
        if number % 3 == 1:
            pictures[-1] = blurred(rng, *_size(rng, 0.8), sigma=2.0 + number % 4)
        if number % 6 == 2:
            pictures[0] = grey(pictures[0])
        key = _digest("mint/pdf-000", number)
        document = DemoDocument(key, _interleave(rng, pictures, words=80 + 15 * number), _pdf_fields(rng, key, number))
        yield from tiff_members(document, None)


def _pdf_jpeg(rng: np.random.Generator) -> Iterator[DemoMember]:
    for number in range(14):
        pictures = [sharp(rng, *_size(rng, 1.75)) for _ in range(1 + number % 4)]
        key = _digest("mint/pdf-001", number)
        document = DemoDocument(key, _interleave(rng, pictures, words=120), _pdf_fields(rng, key, number))
        yield from tiff_members(document, "jpeg")


def _articles(rng: np.random.Generator) -> Iterator[DemoMember]:
    for number in range(14):
        pictures = [sharp(rng, *size) for size in (LANDSCAPE, PORTRAIT, LANDSCAPE)[: 1 + number % 3]]
        if number % 4 == 0:
            pictures[0] = blurred(rng, *LANDSCAPE, sigma=3.0)
        if number % 5 == 3:
            wide = sharp(rng, *WIDE)
            pictures.append(replace(wide, note=f"sharp, very wide ({WIDE[0] / WIDE[1]:.1f} to 1)"))
        fields = {"url": f"https://example.org/articles/{number:03d}", "tags": ["demo", f"part-{number % 3}"]}
        document = DemoDocument(f"article-{number:03d}", _interleave(rng, pictures, words=160), fields)
        yield from file_members(document, ("jpg", "png", "webp"))


def _flyers(rng: np.random.Generator) -> Iterator[DemoMember]:
    shares = (0.02, 0.03, 0.04, 0.06, 0.08, 0.10, 0.12, 0.16, 0.20, 0.25, 0.30)
    for number, share in enumerate(shares):
        text = f"HTTPS://EXAMPLE.ORG/{number:03d}"
        if number % 2:
            code = flyer(rng, 360, 480, share, ("Open day", "Concert", "Book fair")[number % 3], text)
        else:
            angle = 12.0 if number % 4 == 2 and share < 0.2 else 0.0
            code = with_qr_code(rng, sharp(rng, 480, 360), share, text, angle=angle)
        pictures = [sharp(rng, *LANDSCAPE), code]
        fields = {"url": f"https://example.org/flyers/{number:03d}", "printed": number % 2 == 1}
        document = DemoDocument(f"flyer-{number:03d}", _interleave(rng, pictures, words=90), fields)
        yield from file_members(document, ("jpg", "png"))
    for number in range(len(shares), len(shares) + 3):
        pictures = [sharp(rng, *LANDSCAPE), sharp(rng, *PORTRAIT)]
        fields = {"url": f"https://example.org/flyers/{number:03d}", "printed": False}
        document = DemoDocument(f"flyer-{number:03d}", _interleave(rng, pictures, words=90), fields, "no QR code")
        yield from file_members(document, ("jpg", "png"))


def _galleries(rng: np.random.Generator) -> Iterator[DemoMember]:
    for number in range(12):
        key, items, note = f"gallery-{number:03d}", list[Item](), ""
        match number % 3:
            case 0:
                # many pictures and few words give a high image-to-text ratio
                items = [_small(rng) for _ in range(8 + number)]
                items.insert(0, f"Gallery {number}")
                note = "nearly all pictures"
            case 1:
                topic = pick_topic(rng)
                items = [heading(rng, topic), *(paragraph(rng, topic, 160) for _ in range(3 + number)), _small(rng)]
                note = "nearly all text"
            case _ if number == 5:
                items, note = [_small(rng) for _ in range(6)], "pictures without a word"
            case _ if number == 8:
                items, note = [paragraph(rng, pick_topic(rng), 400)], "text without a picture"
            case _:
                items = _interleave(rng, [_small(rng), _small(rng)], words=100)
        yield from file_members(DemoDocument(key, items, {"collection": "galleries"}, note), ("jpg", "webp"))


def _captions(rng: np.random.Generator) -> Iterator[DemoMember]:
    for number in range(14):
        pictures = [sharp(rng, *LANDSCAPE) for _ in range(2)]
        items: list[Item] = []
        for picture in pictures:
            caption, shown = picture.caption, picture
            if number % 2:
                caption = _other_caption(rng, picture)
                shown = replace(picture, note=f"swapped caption, the picture shows: {picture.caption}")
            else:
                shown = replace(picture, note="matching caption")
            items += [caption, shown]
        fields = {"url": f"https://example.org/captions/{number:03d}", "caption_source": "alt text"}
        yield from file_members(DemoDocument(f"caption-{number:03d}", items, fields), ("jpg",))


def _mixed_keys(rng: np.random.Generator) -> Iterator[DemoMember]:
    extra: list[dict[str, Any]] = [
        {"url": "https://example.org/a", "rating": 4},
        {"pdf_name": "b.pdf", "rating": "four stars"},
        {"rating": {"stars": 4, "of": 5}, "tags": ["garden", "spring"]},
        {"language_id_whole_page_fasttext": {"de": 0.71, "en": 0.22}, "rating": None},
        {"previous_word_count": 812, "bff_contained_ngram_count_before_dedupe": 3},
        {"crawl_id": 2**70, "crawled": "2023-05-27T22:35:15Z"},
        {"source": {"site": "example.org", "path": ["a", "b"], "robots": None}},
        {"tags": [], "nothing": None},
        {"score": 0.25, "published": True},
        {"score": 1, "published": "yes"},
        {"authors": [{"name": "A. Author", "orcid": None}, {"name": "B. Author"}]},
        {"title": "Größe, naïve façade & 漢字", "emoji": "🌊"},
    ]
    for number, fields in enumerate(extra):
        # the same stem in two folders makes two documents, not one
        key = f"{'2023-05' if number % 2 else '2023-06'}/{number // 2:06d}"
        pictures = [sharp(rng, *(LANDSCAPE if number % 3 else PORTRAIT))]
        note = f"keys of its own: {', '.join(fields)}"
        yield from file_members(DemoDocument(key, _interleave(rng, pictures, words=70), fields, note), ("webp", "jpg"))


def _tar(members: Callable[[np.random.Generator], Iterable[DemoMember]]) -> Callable[[np.random.Generator], bytes]:
    return lambda rng: pack_tar(members(rng))


SHARDS: Final[dict[str, Callable[[np.random.Generator], bytes]]] = {
    "mint/pdf-000.tar": _tar(_pdf_uncompressed),
    "mint/pdf-001.tar": _tar(_pdf_jpeg),
    "web/articles-000.tar": _tar(_articles),
    "web/flyers-000.tar": _tar(_flyers),
    "web/galleries-000.tar": _tar(_galleries),
    "web/pages-000.tar": _tar(web_pages),
    "crawl-2/captions-000.tar": _tar(_captions),
    "crawl-2/mixed-keys.tar": _tar(_mixed_keys),
    "mint/report.pdf": pdf_report,
    "crawl-2/archive.warc.gz": web_archive,
    "crawl-2/damaged.tar": _tar(damaged_members),
}
"""The function that makes each shard, by path below the raw root."""


def _interleave(rng: np.random.Generator, pictures: Sequence[Picture], words: int) -> list[Item]:
    """Return a heading, then for each picture a paragraph, its caption and the picture; ``words`` words in all."""
    topic = pick_topic(rng)
    items: list[Item] = [heading(rng, topic)]
    for picture in pictures:
        items += [paragraph(rng, topic, words // (len(pictures) + 1)), picture.caption, picture]
    return [*items, paragraph(rng, topic, words // (len(pictures) + 1))]


def _other_caption(rng: np.random.Generator, picture: Picture) -> str:
    """Return a caption of the same kind that does not fit ``picture``."""
    while (caption := compose(rng).caption) == picture.caption:
        pass
    return caption


def _pdf_fields(rng: np.random.Generator, key: str, number: int) -> dict[str, Any]:
    """Return fields as PDF extraction writes them; documents have different ones."""
    fields: dict[str, Any] = {"pdf_name": f"{key}.pdf", "url": f"https://example.org/{key}.pdf"}
    if number % 3:
        share = round(float(rng.uniform(0.6, 0.98)), 4)
        fields["language_id_whole_page_fasttext"] = {_LANGUAGES[number % len(_LANGUAGES)]: share}
    if number % 4 != 1:
        fields["previous_word_count"] = int(rng.integers(100, 4000))
    if number % 4 == 2:
        fields["bff_contained_ngram_count_before_dedupe"] = int(rng.integers(0, 30))
    return fields


def _size(rng: np.random.Generator, scale: float) -> tuple[int, int]:
    """Return width and height in pixels, multiplied by ``scale``: landscape in two of three cases, else portrait."""
    width, height = PORTRAIT if rng.integers(3) == 0 else LANDSCAPE
    return round(width * scale), round(height * scale)


def _small(rng: np.random.Generator) -> Picture:
    return sharp(rng, *_size(rng, 0.8))


def _digest(shard: str, number: int) -> str:
    """Return 32 hex digits, like the document names of MINT-1T."""
    return hashlib.md5(f"{shard}/{number}".encode(), usedforsecurity=False).hexdigest()
