"""A web archive (WARC): pages with menus, footers and pictures, some of whose pictures the archive does not have."""

import base64
import gzip
from collections.abc import Iterator
from html import escape
from typing import Final

import numpy as np

from interleaved_assets.demo.documents import encode
from interleaved_assets.demo.pictures import Picture, blurred, sharp
from interleaved_assets.demo.prose import TOPICS, heading, paragraph

_SITE: Final = "https://example.org"
_SIZE: Final = (400, 300)
_PAGES: Final = 10
_MENU: Final = ("Home", "News", "Gardens", "Harbour", "Contact")
_FOOTER: Final = "Copyright example.org. All rights reserved. Privacy. Imprint. We use cookies to improve your visit."


def web_archive(rng: np.random.Generator) -> bytes:
    """Return a ``.warc.gz`` with pages and pictures; each record is a gzip member of its own, as in Common Crawl."""
    records = (gzip.compress(record, mtime=0) for record in _records(rng))
    return b"".join(records)


def _records(rng: np.random.Generator) -> Iterator[bytes]:
    yield _record("", b"software: interleaved demo\r\nformat: WARC File Format 1.0\r\n", kind="warcinfo")
    for number in range(_PAGES):
        url = f"{_SITE}/news/{number:03d}"
        first = blurred(rng, *_SIZE, sigma=4.0) if number % 4 == 1 else sharp(rng, *_SIZE)
        pictures = [first, sharp(rng, *_SIZE)]
        files = {f"{url}-{place}.jpg": encode(picture, "jpg") for place, picture in enumerate(pictures)}
        sources = list(files)
        if number % 3 == 2:
            # the page holds its last picture itself
            content = files.pop(sources[1])
            sources[1] = f"data:image/jpeg;base64,{base64.b64encode(content).decode('ascii')}"
        if number % 5 == 3:
            del files[sources[0]]  # the crawl did not fetch it
        yield _record(url, _response(_html(rng, pictures, sources).encode(), "text/html; charset=utf-8"))
        for address, content in files.items():
            yield _record(address, _response(content, "image/jpeg"))
    yield _record(f"{_SITE}/gone", _response(b"<p>Not found</p>", "text/html", status="404 Not Found"))


def _html(rng: np.random.Generator, pictures: list[Picture], sources: list[str]) -> str:
    topics = [TOPICS[int(number)] for number in rng.permutation(len(TOPICS))[:4]]
    title = escape(heading(rng, topics[0]).lstrip("# "))
    menu = "".join(f'<li><a href="/{name.lower()}">{name}</a></li>' for name in _MENU)
    parts = [f"<p>{escape(paragraph(rng, topic, 60))}</p>" for topic in topics]
    for place, (picture, source) in enumerate(zip(pictures, sources, strict=True)):
        caption = escape(picture.caption)
        figure = f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
        parts.insert(1 + 2 * place, figure)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>'
        f"<header><nav><ul>{menu}</ul></nav></header><main><article><h1>{title}</h1>{''.join(parts)}</article></main>"
        f"<footer><p>{_FOOTER}</p></footer></body></html>"
    )


def _response(body: bytes, content_type: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _record(url: str, block: bytes, kind: str = "response") -> bytes:
    content_type = "application/http; msgtype=response" if kind == "response" else "application/warc-fields"
    target = f"WARC-Target-URI: {url}\r\n" if url else ""
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\n{target}WARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"
