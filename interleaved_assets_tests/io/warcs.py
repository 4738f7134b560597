"""Web archives for tests, written byte by byte."""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.reader import read_warc
from interleaved_assets.io.warc.settings import WarcSettings

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 50


def http(
    body: bytes, content_type: str = "text/html; charset=utf-8", *, status: str = "200 OK", more: str = ""
) -> bytes:
    """An HTTP response with ``body``; ``more`` are further header lines, each with its line end."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def record(url: str, block: bytes, *, kind: str = "response", more: str = "") -> bytes:
    """A WARC record of an HTTP message."""
    content_type = "application/http; msgtype=response" if kind == "response" else "application/octet-stream"
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{len(block)}>\r\nContent-Type: {content_type}\r\n{more}"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def page(url: str, html: str | bytes, **options: str) -> bytes:
    """The record of a page; ``options`` as for :func:`http`."""
    return record(url, http(html.encode() if isinstance(html, str) else html, **options))


def image(url: str, content: bytes = PNG, content_type: str = "image/png") -> bytes:
    """The record of an image."""
    return record(url, http(content, content_type))


def write_warc(path: Path, records: Iterable[bytes], *, compressed: bool = True) -> str:
    """Write the records, each as a gzip member of its own if ``compressed``; return the path."""
    path.write_bytes(b"".join(gzip.compress(one, mtime=0) if compressed else one for one in records))
    return str(path)


def read(uri: str, settings: WarcSettings | None = None, **options: Any) -> Iterator[pa.Table]:
    """The tables of an archive under these settings and options of reading."""
    return read_warc(uri, ReadOptions(sections={"warc": settings or WarcSettings()}, **options))
