"""The process that parses PDF files with PDFium, each in a fork of its own with limits of memory and time.

It is started as ``python -m interleaved_assets.io.pdf.child`` and reads requests, a line of JSON each, from its
standard input. For each it writes frames to its standard output: a line of JSON with the sizes of the byte strings that
follow, then those bytes. The frame ``{"done": true}`` ends a file. A damaged file can end its fork, and only that: this
process then says on standard error how, and ends too, because a frame may be cut.
"""

import errno
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import IO, Any, Final

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from interleaved_assets.io.pdf.images import MOST_IMAGE_PIXELS, Marks, image_block, png_block
from interleaved_assets.io.pdf.layout import places, reading_order
from interleaved_assets.io.pdf.lines import Box, Paragraph, paragraphs
from interleaved_assets.io.pdf.objects import Matrix, clockwise, object_box, page_matrix, page_objects
from interleaved_assets.io.pdf.tables import page_rules, ruled_tables
from interleaved_assets.io.pdf.text import directions, page_characters, page_runs

_POINTS: Final = 72
_COVERED: Final = 0.8
"""Share of a page from which on an image is the page."""
_EDGE: Final = 0.01
"""Share of the sides of an image, or of the page, that it shows, at least; browsers print edges on the next page."""
_ANYWHERE: Final = Box(-inf, -inf, inf, inf)
_MIB: Final = 2**20
_BUFFER_BYTES: Final = 2**16
"""Larger than Python's 8 KiB, since each refill runs :meth:`_Source.readinto`."""
Frame = tuple[dict[str, Any], list[bytes]]


def main() -> None:
    """Parse the files that the requests name until there are no more."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if (child := os.fork()) == 0:
            _parse(request)
            os._exit(0)
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGPROF:
            _write({"late": f"took more than reading.pdf.max_seconds {request['max_seconds']:g}"}, [])
        elif code:
            ended = _ended(code, used.ru_maxrss // 1024, request)
            _write({"ended": ended, "seconds": used.ru_utime + used.ru_stime}, [])
            sys.exit(ended)  # if it was killed while it wrote, the reader finds half a frame and then the end
        _write({"done": True}, [])


def _ended(code: int, peak: int, request: dict[str, Any]) -> str:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{how} at {peak} MiB (reading.pdf.max_memory is {request['max_memory'] // _MIB} MiB)"


def _parse(request: dict[str, Any]) -> None:
    """Write a frame for a file and one for each page."""
    memory, (_, most) = request["max_memory"], resource.getrlimit(resource.RLIMIT_AS)
    # a lower limit of the user, as of ulimit -v, cannot be raised
    resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # processor time, so that no page is lost to a busy machine or a slow disk; 0 is no limit
    limit = max(request["max_seconds"] - request["seconds_used"], 1e-6)
    signal.setitimer(signal.ITIMER_PROF, limit)
    for head, contents in _frames(request["path"], request):
        if time.process_time() > limit:  # the timer is late by up to a tick
            signal.raise_signal(signal.SIGPROF)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})  # no frame is cut
        _write(head, contents)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})


def _write(head: dict[str, Any], contents: list[bytes]) -> None:
    out = sys.stdout.buffer
    out.write(json.dumps({**head, "sizes": [len(content) for content in contents]}).encode() + b"\n")
    for content in contents:
        out.write(content)
    out.flush()


class _Source(io.FileIO):
    """A file for PDFium, which leaves out what it cannot read; ``failed`` is the error of the first failed read."""

    failed: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        try:
            return os.readv(self.fileno(), [buffer])
        except OSError as error:
            self.failed = self.failed or error
            return 0


def _frames(path: str, options: dict[str, Any]) -> Iterator[Frame]:
    """Yield the frames of a file; the last is ``unreadable``, with the number of the error, if the disk failed."""
    try:
        # PDFium would resolve the path, which may link to a file without a name
        with _Source(path) as source:
            for frame in _read(path, io.BufferedReader(source, _BUFFER_BYTES), options):
                if source.failed is not None:
                    raise source.failed
                yield frame
    except OSError as error:
        if error.errno in (None, errno.ENOMEM):  # the latter is the limit of this process, and of this file
            raise
        yield {"unreadable": error.errno}, []


def _read(path: str, file: IO[bytes], options: dict[str, Any]) -> Iterator[Frame]:
    try:
        document = pdfium.PdfDocument(file)
    except pdfium.PdfiumError as error:
        yield {"refused": str(error)}, []
        return
    marks = Marks.of(path)
    document.init_forms()
    metadata = document.get_metadata_dict(skip_empty=True)
    about = {name.lower(): value.rstrip("\0") for name, value in metadata.items()}  # some programs write C strings
    yield {"pages": len(document), "about": about}, []
    for number in range(options["pages_read"], min(len(document), options["max_pages"])):
        try:
            yield _page(document[number], number, options, marks)
        except (pdfium.PdfiumError, MemoryError, ValueError, OSError) as error:
            yield {"page": number + 1, "blocks": [], "error": f"{type(error).__name__}: {error}"}, []


def _with_fields(page: Any, number: int) -> Any:
    """Return a page on which what is filled in its form, or typed and stamped on it, is like the rest.

    The layers of the file are not known there, so that rendering it would show hidden ones.
    """
    if not _has_more_than_links(page):
        return page
    # PDFium hides fonts and images that a page inherits when it adds to them; a copy has all as its own
    copies = pdfium.PdfDocument.new()
    copies.import_pages(page.pdf, [number])
    raw.FPDFPage_Flatten(copy := copies[0], raw.FLAT_NORMALDISPLAY)
    copy.close()
    return copies[0]


def _has_more_than_links(page: Any) -> bool:
    """Return whether a page has annotations that show something; to load it twice for its links takes a tenth more."""
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        raw.FPDFPage_CloseAnnot(annotation)
        if kind != raw.FPDF_ANNOT_LINK:
            return True
    return False


def _page(page: Any, number: int, options: dict[str, Any], marks: Marks) -> Frame:
    """Return the parts of a page; ``number`` is from 0."""
    filled = _with_fields(page, number)
    shown = Box(*filled.get_bbox())
    if not shown.area:
        shown = _ANYWHERE  # viewers do not follow a CropBox that does not meet the page
    found, turn, others = _texts(filled, shown)
    images: list[tuple[Any, Box]] = []
    for item, outer in page_objects(filled, (raw.FPDF_PAGEOBJ_IMAGE,), Matrix()):
        image = pdfium.PdfObject(item, page=filled)
        box = object_box(item, outer)
        if _stands_in(shown, box) and min(image.get_px_size()) >= options["min_image_side"]:
            images.append((image, box))
    blocks: list[dict[str, Any]] = []
    contents: list[bytes] = []
    before = places(found, [turn.box(box) for _, box in images])
    found += others
    for at in range(len(found) + 1):
        for (image, box), place in zip(images, before, strict=True):
            if place == at:
                blocks.append({**image_block(image, contents, marks), "box": _in_thousandths(box, page)})
        if at < len(found):
            blocks.append({"table" if found[at].is_table else "text": found[at].text})
    has_text = bool(found)
    head = {"page": number + 1, "blocks": blocks, "has_text": has_text}
    if options["model_url"] is not None and (options["model_pages"] == "all" or not has_text):
        rendered = _rendered(page, contents, options["page_dpi"])
        if rendered["image"] is None:
            blocks.append(rendered)
        else:
            head["page_image"] = rendered["image"]
    elif not has_text and options["page_images"] and not _is_scan(page, [box for _, box in images]):
        blocks.append(_rendered(page, contents, options["page_dpi"]))
    return head, contents


def _stands_in(page: Box, image: Box) -> bool:
    across = min(image.right, page.right) - max(image.left, page.left)
    up = min(image.top, page.top) - max(image.bottom, page.bottom)
    return across >= _EDGE * min(image.width, page.width) and up >= _EDGE * min(image.height, page.height)


def _texts(page: Any, shown: Box) -> tuple[list[Paragraph], Matrix, list[Paragraph]]:
    """Return the texts in ``shown`` that run as most of the page does, the map that turns them upright, and all others.

    The page is read so turned that most of it is upright, whatever its /Rotate says. The others are labels of axes,
    stamps at a margin and the like, which are no part of the lines that they stand beside.
    """
    text_page = page.get_textpage()
    characters = page_characters(text_page, shown)
    first, *rest = directions(characters) or [-(page.get_rotation() // 90)]
    turn = clockwise(-first)
    rules = page_rules(page, turn)
    main = ruled_tables(rules, page_runs(text_page, characters, first, rules.upright))
    others = (paragraphs(reading_order(page_runs(text_page, characters, quarter))) for quarter in rest)
    return paragraphs(reading_order(main)), turn, list(chain.from_iterable(others))


def _in_thousandths(box: Box, page: Any) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom from the top left of the page as it is shown, which is 1000 wide and high."""
    turn = page_matrix(page)
    box, shown = turn.box(box), turn.box(Box(*page.get_cropbox()))
    across, down = 1000 / max(shown.width, 1e-6), 1000 / max(shown.height, 1e-6)
    return (
        (box.left - shown.left) * across,
        (shown.top - box.top) * down,
        (box.right - shown.left) * across,
        (shown.top - box.bottom) * down,
    )


def _is_scan(page: Any, images: list[Box]) -> bool:
    """Return whether one image covers the page, so that its rendering would be the same picture again."""
    width, height = page.get_size()
    return any(box.area >= _COVERED * width * height for box in images)


def _rendered(page: Any, contents: list[bytes], dpi: int) -> dict[str, Any]:
    """Append an image of the whole page and return its block."""
    scale = dpi / _POINTS
    width, height = page.get_size()
    if width * height * scale**2 > MOST_IMAGE_PIXELS:
        return {"image": None, "error": f"image_too_large: a page of {width:.0f} × {height:.0f} points at {dpi} dpi"}
    return png_block(page.render(scale=scale), contents)


if __name__ == "__main__":
    main()
