"""A writer of the members of a tar, one after the other; the same members give the same bytes."""

from typing import Any, Final

from interleaved_assets.io.archive.index import BLOCK, RECORD, member_header, padding
from interleaved_assets.io.storage.atomic import BytesLike

# Members up to this size are collected and written together; a larger one is written without a copy.
_SMALL_BYTES: Final = 64 * 2**10
_COLLECTED_BYTES: Final = 2**20


class MemberWriter:
    """A writer of members to ``sink``: :meth:`put` appends one, :meth:`finish` writes the end mark."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._collected = bytearray()
        self._written = 0

    def put(self, name: str, content: BytesLike) -> None:
        """Append a file with mode 0644, owner 0 and time 0."""
        size = len(content)
        self._collected += member_header(name, size)
        if size <= _SMALL_BYTES:
            self._collected += content
        else:
            self._flush()
            self._sink.write(content)
            self._written += size
        self._collected += padding(size)
        if len(self._collected) >= _COLLECTED_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the end mark."""
        self._collected += bytes(2 * BLOCK)
        self._collected += padding(self._written + len(self._collected), RECORD)
        self._flush()

    def _flush(self) -> None:
        self._written += len(self._collected)
        self._sink.write(self._collected)
        # a new buffer, since the sink may still use the old one
        self._collected = bytearray()
