"""A checksum of the footer, verified before Arrow parses it.

Arrow aborts the process on some damaged footers, and misreads others without an error. The writer of this package
therefore puts ``MARK + SHA-256 of the footer + MARK``, the seal, before the footer. Offsets in Parquet count from the
start of the file, so other readers ignore the seal, as they ignore a page index.
"""

import hashlib
import io
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage.atomic import AtomicOutput, BytesLike

MARK: Final = b"\x89ItlvSum"
SEAL_BYTES: Final = 2 * len(MARK) + hashlib.sha256().digest_size

MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_END_BYTES: Final = 4 + len(MAGIC)
# Bytes of the first read at the end of a file: they contain most footers, and Arrow reads as many.
_TAIL_BYTES: Final = 64 * 2**10


class SealedOutput(io.RawIOBase):
    """A sink for Arrow's Parquet writer that inserts the seal before the footer, in :meth:`finish`."""

    def __init__(self, output: AtomicOutput) -> None:
        self._output = output
        self._held: bytearray | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: BytesLike) -> int:  # type: ignore[override]  # typeshed has a private type for it
        """Append ``data``; return its length in bytes."""
        if self._held is None:
            return self._output.write(data)
        self._held += data
        return len(data)

    def finish(self, writer: pq.ParquetWriter) -> None:
        """Close ``writer``, hold back its last output, which ends with the footer, and write it with the seal."""
        self._held = bytearray()
        writer.close()
        held, self._held = bytes(self._held), None
        at = len(held) - _END_BYTES - int.from_bytes(held[-_END_BYTES : -len(MAGIC)], "little")
        self._output.write(held[:at] + seal(held[at:-_END_BYTES]) + held[at:])


def seal(footer: bytes) -> bytes:
    """Return the seal of ``footer``, which is written before it."""
    return MARK + hashlib.sha256(footer).digest() + MARK


def checked_footer(file: BinaryIO | Any) -> bytes:
    """Read the footer (Thrift, without length and magic) of an open Parquet file, and verify its checksum.

    A file of another writer has no seal; its footer is returned unchecked.

    Raises:
        pa.ArrowInvalid: the file is not Parquet, or its footer does not match its seal.
    """
    size = file.seek(0, 2)
    tail = _tail(file, size, _TAIL_BYTES)
    if tail.endswith(_ENCRYPTED_MAGIC):
        raise pa.ArrowInvalid("its footer is encrypted, and there is no way to give a key")
    if len(tail) < _END_BYTES or not tail.endswith(MAGIC):
        raise pa.ArrowInvalid(f"it does not end in {MAGIC.decode()}")
    length = int.from_bytes(tail[-_END_BYTES : -len(MAGIC)], "little")
    if length + _END_BYTES + len(MAGIC) > size:
        raise pa.ArrowInvalid(f"its footer length is stated as {length} bytes, but the file has {size}")
    needed = length + _END_BYTES + SEAL_BYTES
    if needed > len(tail):
        tail = _tail(file, size, needed)
    at = len(tail) - _END_BYTES - length
    footer, found = tail[at:-_END_BYTES], tail[max(at - SEAL_BYTES, 0) : at]
    if found == seal(footer):
        return footer
    if found.startswith(MARK) or found.endswith(MARK):
        raise pa.ArrowInvalid("its footer does not match its checksum")
    return footer


def _tail(file: BinaryIO | Any, size: int, length: int) -> bytes:
    file.seek(max(size - length, 0))
    return bytes(file.read(length))
