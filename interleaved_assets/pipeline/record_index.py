"""An index of the records in a bucket: the contents of a stage's records in one file, for looks at all of them.

A listing of the records says which of them exist, and which stamp each has. The index is asked only for the content of
a record with that stamp, and a record that it lacks or has with another stamp is read. So it is never more than a copy:
without it, or with one that is old, damaged or of another data set, every answer is the same and takes longer.

Runs neither read nor write it. A look at all shards writes it again once it lacks too many records. Of two clusters
that write it at once the later one's file stays; the next look reads the records that it lacks.
"""

import logging
import zlib
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.record import content_stamp

logger = logging.getLogger(__name__)

_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("stamp", pa.string(), nullable=False),
        pa.field("by_stamp", pa.bool_(), nullable=False),
        pa.field("packed", pa.binary(), nullable=False),
    ]
)
# Records of a stage differ in little more than their hashes: packed with one of them as the dictionary, each takes a
# fifth of its size, and is unpacked alone.
_DICTIONARY: Final = b"dictionary"
_LARGEST_BYTES: Final = 2**24
_MISSES: Final = 0.01
"""Share of the records that had to be read above which the index is written again."""


class RecordIndex:
    """The index of one stage: what its file at ``uri`` has, and the records that were read because it lacks them."""

    def __init__(self, uri: str, storage_options: StorageOptions) -> None:
        """Read the file; an index that is missing or damaged is empty."""
        self._uri, self._options = uri, storage_options
        self._rows: dict[str, int] = {}  # by key, its place in the columns
        self._stamps: list[str] = []
        self._by_stamp: list[bool] = []
        self._packed, self._dictionary = pa.array([], pa.binary()), b""
        self._added: dict[str, tuple[str, bool, bytes]] = {}
        try:
            with open_parquet(uri, storage_options) as source:
                table = source.read(source.schema.names)
        except (ShardError, StorageError) as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                logger.warning("the index of records is read from the records again: %s", error)
            return
        if not table.schema.equals(_SCHEMA):
            logger.warning("%s is no index of records; it is written again", uri)
            return
        self._dictionary = (table.schema.metadata or {}).get(_DICTIONARY, b"")
        self._packed = table["packed"].combine_chunks()
        keys, self._stamps, self._by_stamp = (table[name].to_pylist() for name in _SCHEMA.names[:3])
        self._rows = dict(zip(keys, range(len(keys)), strict=True))

    def find(self, key: str, stamp: str) -> bytes | None:
        """The content of the shard's record, if the index has it with this stamp, else None.

        A content has to have the MD5 that the stamp names. Only where the ETags of a bucket are no MD5, as with
        encryption by KMS, the stamp beside it is believed.
        """
        row = self._rows.get(key)
        if row is None or self._stamps[row] != stamp:
            return None
        content = _unpacked(self._packed[row].as_py(), self._dictionary)
        return content if content is not None and (self._by_stamp[row] or content_stamp(content) == stamp) else None

    def add(self, key: str, stamp: str, content: bytes, *, by_stamp: bool) -> None:
        """Remember a record that was read, for the next file; ``by_stamp`` if the stamp does not name its MD5."""
        self._added[key] = (stamp, by_stamp, content)

    def save(self, stamps: Mapping[str, str]) -> None:
        """Write the index again if too many records were missing in it. A refused write is only logged.

        Args:
            stamps: of all records of the stage that there are, by key; others are left out.
        """
        odd = len(self._added) + len(self._rows.keys() - stamps.keys())
        if odd <= _MISSES * len(stamps):
            return
        # all rows of a file are packed with one dictionary; one of the new records where these are the most
        dictionary = self._dictionary
        if len(self._added) > len(self._rows) // 2:
            dictionary = max((each[2] for each in self._added.values()), key=len, default=b"")
        rows = [row for key in sorted(stamps) if (row := self._row(key, stamps[key], dictionary)) is not None]
        columns = {name: [row[number] for row in rows] for number, name in enumerate(_SCHEMA.names)}
        table = pa.table(columns, schema=_SCHEMA.with_metadata({_DICTIONARY: dictionary}))
        try:
            with parquet_shard(self._uri, table.schema, storage_options=self._options, hashed=False) as out:
                out.write(table)
        except StorageError as error:
            logger.warning("the index of records is not written, and looks at all shards stay slow: %s", error)

    def _row(self, key: str, stamp: str, dictionary: bytes) -> tuple[str, str, bool, bytes] | None:
        """The shard's row of the next file; None if neither its record was read nor the present file has it."""
        if key in self._added:
            known, by_stamp, content = self._added[key]
            return (key, stamp, by_stamp, _packed(content, dictionary)) if known == stamp else None
        row = self._rows.get(key)
        if row is None or self._stamps[row] != stamp:
            return None
        by_stamp, packed = self._by_stamp[row], self._packed[row].as_py()
        if dictionary == self._dictionary:
            return key, stamp, by_stamp, packed
        unpacked = _unpacked(packed, self._dictionary)
        return None if unpacked is None else (key, stamp, by_stamp, _packed(unpacked, dictionary))


def _packed(content: bytes, dictionary: bytes) -> bytes:
    packer = zlib.compressobj(zdict=dictionary)
    return packer.compress(content) + packer.flush()


def _unpacked(packed: bytes, dictionary: bytes) -> bytes | None:
    """The content; None if it is damaged."""
    unpacker = zlib.decompressobj(zdict=dictionary)
    try:
        content = unpacker.decompress(packed, _LARGEST_BYTES)
    except zlib.error:
        return None
    return content if unpacker.eof else None
