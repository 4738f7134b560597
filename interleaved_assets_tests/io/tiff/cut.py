"""Cuts one frame out of a TIFF, as materialization does."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.ranges import BlockReader, FileRange
from interleaved_assets.io.tiff.frames import frame_pieces, tiff_frames


def cut_frame(data: bytes, index: int) -> bytes:
    """Frame ``index`` (from 0) as a TIFF file."""
    tiff = BlockReader(data)
    return b"".join(map(bytes, frame_pieces(tiff, tiff_frames(tiff)[index])))


@contextmanager
def in_a_file(data: bytes) -> Iterator[FileRange]:
    """``data`` as a range in the middle of a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"II*\0" + data + b"MM\0*")
        file.flush()
        with LocalFile(Path(file.name), file.name) as local:
            yield FileRange(local, 4, len(data))
