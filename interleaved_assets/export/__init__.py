"""Images of a batch as tars with their tables beside them."""

from interleaved_assets.export.settings import ExportSettings
from interleaved_assets.export.write import WrittenImages, write_images

__all__ = ["ExportSettings", "WrittenImages", "write_images"]
