"""A PDF file, written byte by byte: a printed report with pictures, one page of which is a scan without text."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import numpy as np

from interleaved_assets.demo.documents import encode
from interleaved_assets.demo.pictures import Picture, blurred, sharp
from interleaved_assets.demo.prose import TOPICS, heading, paragraph

WIDTH, HEIGHT = 600, 800
"""Size of a page in points."""
_SIZE: Final = (400, 300)
_PAGES: Final = 6
_LEFT: Final = 60
_CHARACTERS: Final = 85
"""Characters in a line of text."""


def pdf_report(rng: np.random.Generator) -> bytes:
    """Return a PDF file of six pages, each with texts around a picture, one with a table; the last one is a scan."""
    pages: list[bytes] = []
    objects: list[tuple[str, bytes]] = []
    for number in range(_PAGES):
        picture = blurred(rng, *_SIZE, sigma=4.0) if number == 2 else sharp(rng, *_SIZE)
        objects.append((f"Im{number}", jpeg_object(encode(picture, "jpg"), *_SIZE)))
        is_scan = number == _PAGES - 1
        pages.append(shown(f"Im{number}", 0, 175, WIDTH, 450) if is_scan else _page(rng, number, picture))
    return pdf_bytes(pages, objects, title="Report of the demo")


def _page(rng: np.random.Generator, number: int, picture: Picture) -> bytes:
    topics = [TOPICS[int(at)] for at in rng.permutation(len(TOPICS))[:2]]
    content = text(_LEFT, 730, heading(rng, topics[0]).lstrip("# "), size=18)
    content += text(_LEFT, 700, *wrap(paragraph(rng, topics[0], 60), _CHARACTERS))
    content += shown(f"Im{number}", _LEFT, 330, 320, 240)
    content += text(_LEFT, 310, *wrap(picture.caption, _CHARACTERS))
    content += text(_LEFT, 260, *wrap(paragraph(rng, topics[1], 60), _CHARACTERS))
    return content + (_table(150) if number == 1 else b"")


def _table(top: float) -> bytes:
    """Return the content that shows a table with lines."""
    rows, height = (("Place", "Visitors", "Days"), ("Harbour", "412", "12"), ("Market", "1,870", "31")), 20
    edges = (_LEFT, 200, 300, 400)
    content = b"".join(
        f"{edges[0]} {top - height * at} m {edges[-1]} {top - height * at} l S\n".encode() for at in range(4)
    )
    content += b"".join(f"{edge} {top - 3 * height} m {edge} {top} l S\n".encode() for edge in edges)
    for at, row in enumerate(rows):
        for edge, cell in zip(edges, row, strict=False):
            content += text(edge + 6, top - height * at - 14, cell)
    return content


def text(x: float, y: float, *lines: str, size: int = 12) -> bytes:
    """Return the content that shows lines of ASCII below one another; the origin of a page is at the bottom left."""
    escaped = (line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines)
    drawn = " T* ".join(f"({line}) Tj" for line in escaped)
    return f"BT /F1 {size} Tf {size * 1.2} TL {x} {y} Td {drawn} ET\n".encode("ascii", "replace")


def shown(name: str, x: float, y: float, width: float, height: float) -> bytes:
    """Return the content that shows the object ``name`` in a rectangle."""
    return f"q {width} 0 0 {height} {x} {y} cm /{name} Do Q\n".encode()


def stream(fields: str, content: bytes) -> bytes:
    """Return an object with ``content`` and further fields of its dictionary."""
    return f"<< {fields} /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream"


def jpeg_object(content: bytes, width: int, height: int, fields: str = "") -> bytes:
    """Return the object of an image that is a JPEG in RGB."""
    own = f"/Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceRGB {fields}"
    return stream(f"{own} /BitsPerComponent 8 /Filter /DCTDecode", content)


def pdf_bytes(pages: Sequence[bytes], objects: Sequence[tuple[str, bytes]] = (), *, title: str = "") -> bytes:
    """Return a PDF file with these contents of pages; each page may show each of the named ``objects``.

    The objects have the numbers from 5 on.
    """
    first_page = 5 + len(objects)
    numbers = range(first_page, first_page + 2 * len(pages), 2)
    names = " ".join(f"/{name} {5 + at} 0 R" for at, (name, _) in enumerate(objects))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{at} 0 R' for at in numbers)}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>".encode(),
        *(content for _, content in objects),
    ]
    for number, content in zip(numbers, pages, strict=True):
        resources = f"<< /Font << /F1 3 0 R >> /XObject << {names} >> >>"
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {WIDTH} {HEIGHT}] /Resources {resources} "
            f"/Contents {number + 1} 0 R >>".encode()
        )
        bodies.append(stream("", content))
    out, places = bytearray(b"%PDF-1.7\n"), list[int]()
    for number, body in enumerate(bodies, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    end = len(out)
    out += f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    out += f"trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{end}\n%%EOF\n".encode()
    return bytes(out)
