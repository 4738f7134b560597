"""Images of every format that is scored, with damaged headers, chunks, checksums and lengths."""

import io
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from PIL import Image

from benchmarks.fuzz.mutate import mutated

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_WIDTH, _HEIGHT = 64, 48

STUBS: Final = (_PNG + bytes(60), b"\xff\xd8\xff" + bytes(60), b"", b"GIF89a", b"II*\0", bytes(1000))
"""What begins as an image and is none."""


@cache
def sound_images() -> tuple[tuple[str, bytes], ...]:
    """Name and bytes of small sound images: every format with its modes, palettes, depths, orientations and frames."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
    picture = Image.fromarray(coarse).resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC)
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(rng.integers(0, 256, (_HEIGHT, _WIDTH), np.uint8)))
    modes = {mode: picture.convert(mode) for mode in ("RGB", "L", "1", "P", "CMYK", "YCbCr", "LAB", "F", "I")}
    modes |= {"RGBA": alpha, "LA": alpha.convert("LA"), "PA": alpha.quantize(16)}
    modes["I;16"] = Image.fromarray(rng.integers(0, 65536, (_HEIGHT, _WIDTH), np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    second = {"save_all": True, "append_images": [picture.rotate(180)]}
    found: list[tuple[str, bytes]] = []

    def add(kind: str, mode: str, **options: Any) -> None:
        buffer = io.BytesIO()
        modes[mode].save(buffer, kind, **options)
        found.append((" ".join((kind, mode, *options)), buffer.getvalue()))

    for mode in ("RGB", "L", "CMYK"):
        add("JPEG", mode, exif=exif)
    add("JPEG", "RGB", progressive=True)
    add("JPEG", "RGB", subsampling=2, restart_marker_blocks=2)
    for mode in ("RGB", "L", "1", "P", "RGBA", "LA", "I;16"):
        add("PNG", mode, exif=exif)
    add("PNG", "RGB", **second)
    for mode in ("RGB", "L", "1", "P", "CMYK", "YCbCr", "LAB", "RGBA", "LA", "PA", "I;16", "I", "F"):
        add("TIFF", mode)
    for compression in ("jpeg", "tiff_lzw", "tiff_deflate", "packbits", "zstd"):
        add("TIFF", "RGB", compression=compression)
    add("TIFF", "1", compression="group4")
    add("TIFF", "RGB", **second)
    for mode in ("RGB", "RGBA"):
        add("WEBP", mode, exif=b"Exif\0\0" + exif.tobytes())
        add("WEBP", mode, lossless=True)
        add("AVIF", mode)
        add("JPEG2000", mode)
    add("WEBP", "RGB", **second)
    add("JPEG2000", "L", no_jp2=True)
    add("GIF", "P")
    add("GIF", "L")
    for mode in ("RGB", "L", "1", "P", "RGBA"):
        add("BMP", mode)
    add("ICO", "RGBA", sizes=[(32, 32), (16, 16)])
    add("ICO", "RGBA", sizes=[(32, 32)], bitmap_format="bmp")
    for mode in ("RGB", "L", "1", "I"):
        add("PPM", mode)
    floats = np.asarray(modes["F"], "<f4").tobytes()
    return (
        *found,
        ("PFM grey", b"Pf\n64 48\n-1.0\n" + floats),
        ("PFM colour", b"PF\n64 48\n-1.0\n" + floats * 3),
        ("PPM text", b"P3\n4 3\n255\n" + b"1 2 3 " * 12),
        ("PAM", b"P7\nWIDTH 4\nHEIGHT 3\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n" + bytes(36)),
    )


def odd_image(dice: random.Random) -> bytes:
    """A mutated image."""
    _, data = dice.choice(sound_images())
    for _ in range(dice.choice((1, 1, 1, 2))):
        if data:
            data = dice.choice(_MUTATIONS)(dice, data)
    return data


def _header(dice: random.Random, data: bytes) -> bytes:
    return mutated(dice, data, 0, 128)


def _splice(dice: random.Random, data: bytes) -> bytes:
    _, other = dice.choice(sound_images())
    return data[: dice.randrange(len(data))] + other[dice.randrange(len(other)) :]


def _png_chunk(dice: random.Random, data: bytes) -> bytes:
    """Insert a chunk or rewrite IHDR with sound checksums, so that parsers get behind them."""
    if not data.startswith(_PNG) or len(data) < 33:
        return mutated(dice, data)
    if dice.random() < 0.5:
        fields = bytearray(data[16:29])
        fields[dice.randrange(13)] = dice.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
        return data[:16] + fields + struct.pack(">I", zlib.crc32(b"IHDR" + fields)) + data[33:]
    names = (b"IDAT", b"eXIf", b"tRNS", b"iCCP", b"PLTE", b"acTL", b"fcTL", b"fdAT", b"tEXt", b"zTXt", b"iTXt", b"IEND")
    name, content = dice.choice(names), dice.randbytes(dice.choice((0, 1, 4, 8, 26, 100)))
    length = dice.choice((len(content), len(content), 2**32 - 1, 2**31 - 1, 2**28))
    chunk = struct.pack(">I", length) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return data[:33] + chunk + data[33:]


def _jpeg_segment(dice: random.Random, data: bytes) -> bytes:
    """Insert a segment with a length that is right or wrong, or mutate one."""
    if not data.startswith(b"\xff\xd8"):
        return mutated(dice, data)
    marker = dice.choice((0xC0, 0xC2, 0xC4, 0xCC, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE1, 0xE2, 0xED, 0xEE, 0xFE))
    content = dice.choice((b"", b"Exif\0\0", b"Adobe\0", b"ICC_PROFILE\0\1\1")) + dice.randbytes(
        dice.choice((0, 6, 64))
    )
    length = dice.choice((len(content) + 2, len(content) + 2, 0, 1, 2, 65535))
    return data[:2] + struct.pack(">BBH", 255, marker, length) + content + data[2:]


def _riff_chunk(dice: random.Random, data: bytes) -> bytes:
    """Change name, length or flags of WebP's chunks."""
    if data[:4] != b"RIFF":
        return mutated(dice, data)
    chunks = [
        at for name in (b"VP8 ", b"VP8L", b"VP8X", b"EXIF", b"ANIM", b"ANMF", b"ALPH") if (at := data.find(name)) > 0
    ]
    at = dice.choice((4, *chunks))
    changed = bytearray(data)
    if dice.random() < 0.5:
        changed[at + 4 : at + 8] = struct.pack("<I", dice.choice((0, 1, 10, 2**16, 2**31, 2**32 - 1)))
    elif dice.random() < 0.5:
        changed[at : at + 4] = dice.choice((b"VP8 ", b"VP8L", b"VP8X", b"EXIF", b"XMP ", b"ALPH", b"????"))
    else:
        changed[at + 8 : at + 18] = dice.randbytes(10)
    return bytes(changed)


def _orientation(dice: random.Random, data: bytes) -> bytes:
    """Another value behind each orientation tag, also ones that do not exist."""
    number = dice.choice((0, 2, 3, 5, 6, 7, 8, 9, 255))
    changed = bytearray(data)
    for tag, form in ((b"\x01\x12\x00\x03", ">H"), (b"\x12\x01\x03\x00", "<H")):
        if (at := data.find(tag)) >= 0:
            changed[at + 8 : at + 10] = struct.pack(form, number)
    return bytes(changed)


def _noise(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + dice.randbytes(32) + data[at + 32 :]


_MUTATIONS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    mutated, mutated, mutated, _header, _header, _png_chunk, _jpeg_segment, _riff_chunk, _splice, _noise, _orientation,
)  # fmt: skip
