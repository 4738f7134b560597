"""The files of the output root that have a URL, and their URLs."""

from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from interleaved_assets.io.storage import check_allowed, join
from interleaved_assets.pipeline.raw.keys import is_key
from interleaved_assets.pipeline.stages.dag import EVERY_STAGE
from interleaved_assets.reporting.dataset import REPORT_FILE
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets.settings.shard_paths import FAILURES_FOLDER, ShardPaths


class PlaceKind(StrEnum):
    PAGE = "page"
    """An HTML file, shown as it was written, below links to the first page and the report."""
    JSON = "json"
    """A record or a failure."""
    LEDGER = "ledger"
    """A ledger, which is shown as a table."""


class Place(NamedTuple):
    """A file that has a URL. It may not exist."""

    kind: PlaceKind
    uri: str
    key: str = ""
    """Key of its shard; empty for the report."""
    stage: str = ""
    """Stage that wrote it; empty for the report and for pages."""


_PER_STAGE: Final = {
    "dropped": (PlaceKind.LEDGER, ".parquet", ShardPaths.ledger),
    "records": (PlaceKind.JSON, ".json", ShardPaths.record),
    FAILURES_FOLDER: (PlaceKind.JSON, ".json", ShardPaths.failure),
}


def find_place(path: str, storage: StorageSettings) -> Place | None:
    """Return the file with this path of a URL, as the browser sends it; None for a path that is no URL of a file.

    The place is built from the stage and the key that the path names, so no path leads out of these folders. A symbolic
    link that leads out of the output root is refused too.
    """
    try:
        name = unquote(path, errors="strict").removeprefix("/")
    except UnicodeDecodeError:
        return None
    place = _place(name, storage)
    return place if place and check_allowed(place.uri, [storage.output_root]) else None


def _place(name: str, storage: StorageSettings) -> Place | None:
    if name == REPORT_FILE:
        return Place(PlaceKind.PAGE, join(storage.output_root, REPORT_FILE))
    folder, _, rest = name.partition("/")
    if folder == "pages":
        key = rest.removesuffix(".html")
        return Place(PlaceKind.PAGE, storage.shard(key).page(), key) if key != rest and is_key(key) else None
    stage, _, rest = rest.partition("/")
    if folder not in _PER_STAGE or stage not in EVERY_STAGE:
        return None
    kind, ending, uri_of = _PER_STAGE[folder]
    key = rest.removesuffix(ending)
    if key == rest or not is_key(key):
        return None
    return Place(kind, uri_of(storage.shard(key), stage), key, stage)


def path_of(uri: str, storage: StorageSettings) -> str:
    """Return the path of the URL of a file below the output root, without a slash at its beginning."""
    return quote(uri.removeprefix(join(storage.output_root, "")))


def url_of(uri: str, settings: Settings) -> str | None:
    """Return the URL of such a file at ``serve.url``; None if that is not set."""
    base = settings.serve.url.rstrip("/")
    return f"{base}/{path_of(uri, settings.storage)}" if base else None
