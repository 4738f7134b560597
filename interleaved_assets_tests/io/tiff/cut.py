"""Cuts one frame out of a TIFF, as materialization does."""

from interleaved_assets.io.tiff.frames import frame_pieces, tiff_frames


def cut_frame(data: bytes, index: int) -> bytes:
    """Frame ``index`` (from 0) as a TIFF file."""
    return b"".join(frame_pieces(data, tiff_frames(data)[index]))
