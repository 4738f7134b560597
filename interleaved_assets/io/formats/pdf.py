"""The format of PDF: each file a document."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.pdf.settings import PdfSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.tar.reader import ReadOptions


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.pdf.reader import read_pdf  # declaring a format loads no reader

    return read_pdf(uri, options, options.sections.get("pdf") or PdfSettings())


def _read_files(uris: Sequence[str], options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.pdf.reader import read_pdfs

    return read_pdfs(uris, options, options.sections.get("pdf") or PdfSettings())


PDF: Final = ShardFormat(
    name="pdf",
    endings=(".pdf",),
    read=_read,
    read_files=_read_files,
    magic=b"%PDF-",
    section="pdf",
    settings=PdfSettings,
)
