"""The built-in formats of shard files. A new format is a file in this folder and its name in the line below."""

from interleaved_assets.io.formats.format import (
    ShardFormat,
    all_formats,
    format_named,
    format_sections,
    register_format,
    shard_endings,
)
from interleaved_assets.io.formats.images import IMAGES
from interleaved_assets.io.formats.jsonl import JSONL
from interleaved_assets.io.formats.parquet import PARQUET
from interleaved_assets.io.formats.pdf import PDF
from interleaved_assets.io.formats.tar import TAR
from interleaved_assets.io.formats.warc import WARC

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
