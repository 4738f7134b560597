"""The format of JSONL: documents that name their images by URL, such as MMC4's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.web_documents.settings import UrlSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.tar.reader import ReadOptions


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.web_documents.jsonl import read_jsonl  # declaring a format loads no reader

    return read_jsonl(uri, options, options.sections.get("urls") or UrlSettings())


def _shortfall(uri: str, options: "ReadOptions") -> str | None:
    from interleaved_assets.io.web_documents.jsonl import jsonl_shortfall

    return jsonl_shortfall(uri, options)


JSONL: Final = ShardFormat(
    name="jsonl",
    endings=(".jsonl", ".jsonl.gz"),
    read=_read,
    version=2,
    section="urls",
    settings=UrlSettings,
    paths=("image_store",),
    shortfall=_shortfall,
)
