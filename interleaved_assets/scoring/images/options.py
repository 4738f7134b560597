"""Values of the settings of scoring. Processes that decode no image load them."""

from typing import Final

DEFAULT_MAX_PIXELS: Final = 89_478_485
"""Pixels above which an image is refused: Pillow's own limit for a decompression bomb, 256 MiB as RGB."""

THUMBNAIL_COLUMN: Final = "thumbnail"
"""Column of the scorer ``thumbnail``: a small picture as a JPEG."""
