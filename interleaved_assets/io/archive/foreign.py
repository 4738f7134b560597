"""Formats of files that are not tars, and the advice for each in error messages."""

from typing import Final

_FORMATS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it, or pack it with gzip"),
    (b"\x04\x22\x4d\x18", "compressed with lz4: unpack it, or pack it with gzip"),
    (b"\x1f\x9d", "compressed with compress (.Z): unpack it, or pack it with gzip"),
    (b"\x5d\0\0", "compressed with lzma: unpack it, or pack it with gzip"),
    (b"\x1f\x8b", "compressed twice: unpack it once"),
    (b"PK\x03\x04", "a ZIP archive: pack its files as a tar; the web archives in a WACZ file are read unpacked"),
    (b"filedesc://", "a web archive in the older form ARC: make a WARC of it with 'warcio recompress'"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: pack its files as a tar"),
    (b"PAR1", "a compressed Parquet file: unpack it"),
    (b"version https://git-lfs.github.com/", "a pointer of Git LFS, not the file: fetch it with git lfs pull"),
    (b"<", "a page of HTML or XML, perhaps the answer of a server that refused the download: fetch it again"),
)


def foreign_format(front: bytes) -> str | None:
    """Return the format of a file by its first bytes, and what to do with it; None for an unknown format."""
    return next((what for magic, what in _FORMATS if front.startswith(magic)), None)
