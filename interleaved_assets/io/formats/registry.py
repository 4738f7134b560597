"""The built-in formats of shard files. A format names its functions, so that declaring it loads no reader."""

from functools import partial
from importlib import import_module
from typing import Any, Final

from interleaved_assets.io.formats.format import (
    ShardFormat,
    all_formats,
    format_named,
    format_sections,
    register_format,
    shard_endings,
)
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.tar.layout import TAR_ENDINGS, TEXT_EXTENSION
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.io.web_documents.settings import UrlSettings


def _imported(place: str) -> Any:
    """Return a function that imports the function at ``place``, such as ``"package.module:function"``, and calls it."""
    return partial(_called, place)


def _called(place: str, *arguments: Any, **named: Any) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*arguments, **named)


_tar_shard = _imported("interleaved_assets.io.tar.writer:tar_shard")
_parquet_shard = _imported("interleaved_assets.io.parquet.writer:parquet_shard")

TAR: Final = ShardFormat(
    name="tar",
    endings=TAR_ENDINGS,
    read=_imported("interleaved_assets.io.tar.reader:read_tar"),
    write=lambda uri, _, options, limits: _tar_shard(uri, storage_options=options, limits=limits),
    version=0,
    has_layout=True,
    keeps_ending=False,
    can_reference=True,
    shortfall=_imported("interleaved_assets.io.tar.reader:tar_shortfall"),
)
"""Tars of documents: MINT-1T's, and those that this package writes."""

PARQUET: Final = ShardFormat(
    name="parquet",
    endings=(".parquet",),
    read=_imported("interleaved_assets.io.web_documents.parquet:read_parquet"),
    write=lambda uri, schema, options, _: _parquet_shard(uri, schema, storage_options=options),
    magic=b"PAR1",
    version=3,
    section="urls",
    settings=UrlSettings,
    paths=("image_store",),
    fetch=_imported("interleaved_assets.io.parquet.cells:fetch_cells"),
    shortfall=_imported("interleaved_assets.io.web_documents.parquet:parquet_shortfall"),
)
"""Rows of the row model, or documents with lists of texts and image URLs."""

JSONL: Final = ShardFormat(
    name="jsonl",
    endings=(".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.zip"),
    read=_imported("interleaved_assets.io.web_documents.jsonl:read_jsonl"),
    read_files=_imported("interleaved_assets.io.web_documents.jsonl:read_jsonls"),
    version=3,
    section="urls",
    settings=UrlSettings,
    paths=("image_store",),
    shortfall=_imported("interleaved_assets.io.web_documents.jsonl:jsonl_shortfall"),
)
"""Documents that name their images by URL, such as MMC4's."""

WARC: Final = ShardFormat(
    name="warc",
    endings=(".warc", ".warc.gz"),
    read=_imported("interleaved_assets.io.warc.reader:read_warc"),
    magic=b"WARC/",
    version=12,
    section="warc",
    settings=WarcSettings,
    shortfall=_imported("interleaved_assets.io.warc.reader:warc_shortfall"),
    can_reference=True,
    fetch=_imported("interleaved_assets.io.warc.reader:fetch_bodies"),
)
"""Web archives: each page a document."""

PDF: Final = ShardFormat(
    name="pdf",
    endings=(".pdf",),
    read=_imported("interleaved_assets.io.pdf.reader:read_pdf"),
    read_files=_imported("interleaved_assets.io.pdf.reader:read_pdfs"),
    magic=b"%PDF-",
    version=15,
    section="pdf",
    settings=PdfSettings,
)
"""PDF: each file a document."""

IMAGES: Final = ShardFormat(
    name="images",
    endings=IMAGE_EXTENSIONS,
    read=_imported("interleaved_assets.io.image_files.reader:read_image_file"),
    read_files=_imported("interleaved_assets.io.image_files.reader:read_image_files"),
    version=2,
    beside=(TEXT_EXTENSION, ".json"),
    only_bundled=True,
)
"""Image files: each a document with the text and JSON beside it."""

for _built_in in (TAR, PARQUET, JSONL, WARC, PDF, IMAGES):
    register_format(_built_in)

__all__ = [
    "JSONL",
    "PARQUET",
    "TAR",
    "WARC",
    "all_formats",
    "format_by_name",
    "format_named",
    "format_sections",
    "shard_endings",
]


def format_by_name(path: str) -> ShardFormat:
    """Return the format whose ending ``path`` has; without one that of tars, whose reader says what a file is not."""
    return format_named(path) or TAR
