"""A checksum of the footer, verified before Arrow parses it.

Arrow ends the process on some damaged footers, and reads others differently without an error. A file of ours has
``MARK + SHA-256 of the footer + MARK`` in front of its footer. All offsets in Parquet count from the start of the file,
so other readers pass over it, as they do over a page index.
"""

import hashlib
from typing import Any, BinaryIO, Final

import pyarrow as pa

from interleaved_assets.io.storage.atomic import AtomicOutput, BytesLike

MARK: Final = b"\x89ItlvSum"
SEAL_BYTES: Final = 2 * len(MARK) + hashlib.sha256().digest_size

MAGIC: Final = b"PAR1"
_END_BYTES: Final = 4 + len(MAGIC)
# What is read of the end of a file at first: most footers lie within it, and it is what Arrow itself asks for.
_TAIL_BYTES: Final = 64 * 2**10


class SealedOutput:
    """A sink for Arrow's Parquet writer that puts the seal in front of the footer.

    Call :meth:`hold` before the writer is closed and :meth:`release` afterwards.
    """

    # pyarrow asks a sink for it
    closed = False

    def __init__(self, output: AtomicOutput) -> None:
        self._output = output
        self._held: bytearray | None = None

    def write(self, data: BytesLike) -> int:
        """Append ``data``; gives its length in bytes.

        Raises:
            StorageError: it cannot be written.
        """
        if self._held is None:
            return self._output.write(data)
        self._held += data
        return len(data)

    def tell(self) -> int:
        """Bytes written so far, those held included."""
        return self._output.tell() + len(self._held or b"")

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = bytearray()

    def release(self) -> None:
        """Write what was kept, which ends in the footer, with the seal in front of the footer."""
        held = bytes(self._held or b"")
        self._held = None
        at = len(held) - _END_BYTES - int.from_bytes(held[-_END_BYTES : -len(MAGIC)], "little")
        self._output.write(held[:at] + seal(held[at:-_END_BYTES]) + held[at:])

    def writable(self) -> bool:
        """Always. This and what follows is the file protocol, for pyarrow."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def flush(self) -> None:
        """Nothing to do: the bytes count once the output is committed."""

    def close(self) -> None:
        """Nothing to do: the output is closed by its owner."""


def seal(footer: bytes) -> bytes:
    """The bytes that stand in front of ``footer`` in a file of ours."""
    return MARK + hashlib.sha256(footer).digest() + MARK


def checked_footer(file: BinaryIO | Any) -> bytes:
    """The footer (Thrift, without its length and the magic) of an open Parquet file, its checksum verified.

    A file without a seal is one by another writer: its footer is given as it is.

    Args:
        file: seekable, binary; its position afterwards is unspecified.

    Raises:
        pa.ArrowInvalid: the file is not Parquet, or is one of ours whose footer or seal has changed.
    """
    size = file.seek(0, 2)
    tail = _tail(file, size, _TAIL_BYTES)
    if len(tail) < _END_BYTES or not tail.endswith(MAGIC):
        raise pa.ArrowInvalid(f"it does not end in {MAGIC.decode()}")
    length = int.from_bytes(tail[-_END_BYTES : -len(MAGIC)], "little")
    if length + _END_BYTES + len(MAGIC) > size:
        raise pa.ArrowInvalid(f"its footer is said to be {length} bytes long, and the file has {size}")
    needed = length + _END_BYTES + SEAL_BYTES
    if needed > len(tail):
        tail = _tail(file, size, needed)
    at = len(tail) - _END_BYTES - length
    footer, found = tail[at:-_END_BYTES], tail[max(at - SEAL_BYTES, 0) : at]
    if found == seal(footer):
        return footer
    if found.startswith(MARK) or found.endswith(MARK) or _is_sealed_elsewhere(tail):
        raise pa.ArrowInvalid("its footer does not have the checksum that it was written with")
    return footer


def _tail(file: BinaryIO | Any, size: int, length: int) -> bytes:
    file.seek(max(size - length, 0))
    return bytes(file.read(length))


def _is_sealed_elsewhere(tail: bytes) -> bool:
    """Whether there is a sound seal and footer of ours in ``tail``, at another place than the footer's length says."""
    at = tail.find(MARK)
    while at >= 0:
        if tail[at : at + SEAL_BYTES] == seal(tail[at + SEAL_BYTES : -_END_BYTES]):
            return True
        at = tail.find(MARK, at + 1)
    return False
