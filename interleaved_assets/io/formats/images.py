"""The format of image files: each a document with the text and JSON beside it. They are shards in bundles only."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.tar.layout import TEXT_EXTENSION, split_extension

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.tar.reader import ReadOptions

_BESIDE: Final = (TEXT_EXTENSION, ".json")


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.storage import exists

    beside = (split_extension(uri)[0] + ending for ending in _BESIDE)
    return _read_files([uri, *(one for one in beside if exists(one, options.storage_options))], options)


def _read_files(uris: Sequence[str], options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.image_files.reader import read_image_files  # declaring a format loads no reader

    return read_image_files(uris, options)


IMAGES: Final = ShardFormat(
    name="images",
    endings=IMAGE_EXTENSIONS,
    read=_read,
    read_files=_read_files,
    beside=_BESIDE,
    only_bundled=True,
)
