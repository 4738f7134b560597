"""MIME types of image files, by extension and by first bytes, and the extension of a MIME type.

The table is fixed, because the standard library's ``mimetypes`` reads configuration files of the machine.
"""

from typing import Final

TEXT: Final = "text/plain"
JSON: Final = "application/json"
TIFF: Final = "image/tiff"

# files are written with the first extension
_EXTENSIONS: Final = {
    "image/jpeg": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "image/png": (".png", ".apng"),
    "image/webp": (".webp",),
    TIFF: (".tiff", ".tif"),
    "image/gif": (".gif",),
    "image/bmp": (".bmp", ".dib"),
    "image/avif": (".avif",),
    "image/heic": (".heic", ".heif"),
    "image/jp2": (".jp2",),
    "image/jxl": (".jxl",),
    "image/svg+xml": (".svg",),
    "image/x-icon": (".ico",),
    "image/x-portable-pixmap": (".ppm",),
    "image/x-portable-graymap": (".pgm",),
}
_TYPES: Final = {extension: mime for mime, extensions in _EXTENSIONS.items() for extension in extensions}

IMAGE_EXTENSIONS: Final = tuple(_TYPES)
"""All extensions of images, lower case, with dot."""

CONTROLS: Final = bytes([*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20)])
"""Control characters that no text has."""

SNIFFED_BYTES: Final = 32
"""Number of bytes that :func:`sniff` needs."""

_MAGIC: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"II+\0", TIFF),
    (b"MM\0+", TIFF),
    (b"BM", "image/bmp"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\xff\x0a", "image/jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
)
_BRANDS: Final = {b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"mif1": "image/heic"}


def type_of(extension: str) -> str | None:
    """Return the MIME type of an extension with its dot, in any case; None if it is not an image's."""
    return _TYPES.get(extension.lower())


def extension_of(content_type: str | None) -> str | None:
    """Return the usual extension of a MIME type, with its dot; None if the type is not an image's."""
    return _EXTENSIONS[content_type][0] if content_type in _EXTENSIONS else None


def seems_utf16(text: bytes) -> bool:
    """Return whether bytes seem to be UTF-16 or UTF-32 without a mark, although they may be valid UTF-8.

    About every second byte of such text is a control character; of other texts at most single ones are. Zeros at the
    end do not count.
    """
    kept = text.rstrip(b"\0")
    controls = len(kept) - len(kept.translate(None, CONTROLS))
    return controls > 1 and controls * 4 > len(kept)


def sniff(head: bytes) -> str | None:
    """Return the MIME type of an image from its first :data:`SNIFFED_BYTES` bytes; None for unknown bytes."""
    for magic, mime in _MAGIC:
        if head.startswith(magic):
            return mime
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12])
    return None
