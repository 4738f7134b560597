"""The documents of a release as Parquet, one row each, in the form that ``datasets.load_dataset`` reads.

``datasets`` cannot read interleaved tars: it takes the members of the first samples as the columns of all samples, and
so leaves out images at other positions.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import StorageOptions, atomic_output, exists, join, open_input
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.release.manifest import Manifest, ReleasedTar
from interleaved_assets.pipeline.stages.webdataset_samples import webdataset_samples

DOCUMENTS_FOLDER: Final = "documents"
_GROUP_BYTES: Final = 64 * 2**20
_MOST_ROW_BYTES: Final = 2**31 - 2**20
"""Most bytes of the images of a row: ``datasets`` reads them with 32-bit offsets."""
_TEXT: Final = {"dtype": "string", "_type": "Value"}
# `Sequence` is read by every version of datasets, `List` since 4.0
_FEATURES: Final = {
    "key": _TEXT,
    "texts": {"feature": _TEXT, "_type": "Sequence"},
    "images": {"feature": {"_type": "Image"}, "_type": "Sequence"},
    "fields": _TEXT,
    "tar": _TEXT,
}
_IMAGE: Final = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("images", pa.list_(_IMAGE)),
        ("fields", pa.string()),
        ("tar", pa.string()),
    ],
    metadata={"huggingface": json.dumps({"info": {"features": _FEATURES}})},
)
_LEAVES: Final = ("key", "texts.list.element", "images.list.element.path", "fields", "tar")


def documents_files(manifest: Manifest) -> list[str]:
    """Return the path of each tar's documents, in the order of the tars.

    Names are numbers, as on Hugging Face: ``datasets`` leaves out files whose names begin with a dot.
    """
    number = len(manifest.tars)
    return [f"{DOCUMENTS_FOLDER}/train-{index:05}-of-{number:05}.parquet" for index in range(number)]


def write_documents(tar: ReleasedTar, path: str, folder: str, options: StorageOptions) -> None:
    """Write the documents of ``tar`` as ``path``, both in ``folder``. A file that exists is complete and stays.

    Raises:
        ShardError: a document is too large for a row, or the tar has another number of documents than recorded.
    """
    target = join(folder, path)
    if exists(target, options):
        return
    documents = 0
    with (
        open_input(join(folder, tar.path), options) as file,
        atomic_output(target, options) as out,
        pq.ParquetWriter(
            out,
            _SCHEMA,
            compression={**dict.fromkeys(_LEAVES, "zstd"), "images.list.element.bytes": "none"},
            use_dictionary=["tar"],
            write_statistics=["key", "tar"],
        ) as writer,
    ):
        for rows in _groups(file, tar.path):
            writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
            documents += len(rows)
        if documents != tar.counts.samples:
            raise ShardError(f"{join(folder, tar.path)} has {documents:,} documents instead of {tar.counts.samples:,}")


def _groups(file: Any, tar: str) -> Iterator[list[dict[str, Any]]]:
    """Yield groups of rows of at most ``_GROUP_BYTES``; a single larger row is a group of its own."""
    rows: list[dict[str, Any]] = []
    size = 0
    for key, members in webdataset_samples(file):
        own = sum(map(len, members.values()))
        if own > _MOST_ROW_BYTES:
            raise ShardError(
                f"{tar}: document {key!r} has {own:,} bytes, and a row of Parquet for datasets at most "
                f"{_MOST_ROW_BYTES:,}. Make the release without --documents."
            )
        if rows and size + own > _GROUP_BYTES:
            yield rows
            rows, size = [], 0
        rows.append(_row(key, members, tar))
        size += own
    if rows:
        yield rows


def _row(key: str, members: Mapping[str, bytes], tar: str) -> dict[str, Any]:
    document = json.loads(members["json"])
    images = [
        # the field of a sample is what follows the key, in lower case
        token and {"bytes": members[token.removeprefix(f"{key}.").lower()], "path": token}
        for token in document.pop("images")
    ]
    return {"key": key, "texts": document.pop("texts"), "images": images, "fields": json.dumps(document), "tar": tar}
