"""The format of web archives (WARC): each page a document."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.warc.settings import WarcSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.storage.limits import TarLimits
    from interleaved_assets.io.tar.reader import ReadOptions


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.warc.reader import read_warc  # declaring a format loads no reader

    return read_warc(uri, options, options.sections.get("warc") or WarcSettings())


def _fetch(
    uri: str, parts: Sequence[str], storage_options: StorageOptions, limits: "TarLimits"
) -> Iterator[tuple[str, bytes | str]]:
    from interleaved_assets.io.warc.reader import fetch_bodies

    return fetch_bodies(uri, parts, storage_options, limits)


def _shortfall(uri: str, options: "ReadOptions") -> str | None:
    from interleaved_assets.io.warc.reader import warc_shortfall

    return warc_shortfall(uri, options)


WARC: Final = ShardFormat(
    name="warc",
    endings=(".warc", ".warc.gz"),
    read=_read,
    magic=b"WARC/",
    version=2,
    section="warc",
    settings=WarcSettings,
    shortfall=_shortfall,
    can_reference=True,
    fetch=_fetch,
)
