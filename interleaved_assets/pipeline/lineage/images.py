"""Names of images as lists show them, and the images of raw shards that have such a name."""

import json
import re
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.rows.blocks import IMAGE_URL
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.model.source_ref import parse_source_ref
from interleaved_assets.pipeline.run.record import record_of
from interleaved_assets.pipeline.run.threads import READERS, found_or_error
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.settings import StorageSettings

_ROW: Final = ("sample_id", "position", "modality", "source_ref")
_FRAME: Final = re.compile(r", frame \d+\Z")


def image_name(source_ref: str | None, url: str | None = None, page: int | None = None) -> str:
    """Return the member or the file of an image, with its frame; the locator as it is if it cannot be parsed.

    An image that is only a part of a file, such as of a web archive, is named by ``url``, and one without a locator and
    a URL by the ``page`` of its PDF.
    """
    try:
        ref = parse_source_ref(source_ref)
    except ValueError:
        return source_ref or ""
    frame = "" if ref.frame_index is None else f", frame {ref.frame_index}"
    file = (ref.path or url) if ref.part is None else (url or ref.path)
    return f"{ref.member or file or ('' if page is None else f'page {page}')}{frame}"


class NamedImage(NamedTuple):
    """An image of a raw shard."""

    shard: str
    sample_id: str
    position: int
    image: str
    """The whole name, with its frame, as in :func:`image_name`."""


def find_image(
    name: str, keys: Iterable[str], storage: StorageSettings
) -> Iterator[tuple[str, list[NamedImage] | InterleavedError]]:
    """Yield each of ``keys`` whose raw shard has images with ``name``, with all of these images.

    The name may lack the folders, and the frame: images of all frames are then found. Of every shard the locators of
    ``normalized`` are read. A shard that cannot be read is yielded with its error.
    """

    def find(key: str) -> list[NamedImage]:
        paths = storage.shard(key)
        record = record_of(paths, NORMALIZED)
        if record is None:
            return []
        with open_parquet(record.outputs["rows"].uri, paths.options, advice="Materialize its shard again.") as source:
            has_url = IMAGE_URL in source.schema.names and pa.types.is_string(source.schema.field(IMAGE_URL).type)
            rows = source.read([*_ROW, IMAGE_URL] if has_url else list(_ROW))
        return _with_name(name, rows, key)

    return filter(itemgetter(1), found_or_error(find, keys, threads=READERS))


def _with_name(name: str, rows: pa.Table, key: str) -> list[NamedImage]:
    file = _FRAME.sub("", name)
    # few rows have the name anywhere, and only their locators are parsed
    as_json = json.dumps(file, ensure_ascii=False)[1:-1]
    may_have = pc.fill_null(pc.match_substring(rows["source_ref"].cast(pa.string()), as_json), False)
    if IMAGE_URL in rows.column_names:
        may_have = pc.or_(may_have, pc.fill_null(pc.match_substring(rows[IMAGE_URL], file), False))
    images = rows.filter(pc.and_(may_have, pc.equal(rows["modality"], "image"))).to_pylist()
    named = [
        NamedImage(key, row["sample_id"], row["position"], image_name(row["source_ref"], row.get(IMAGE_URL)))
        for row in images
    ]
    return [image for image in named if _is_named(image.image, name)]


def _is_named(image: str, name: str) -> bool:
    return any(one == name or one.endswith(f"/{name}") for one in (image, _FRAME.sub("", image)))
