"""Images of a batch as tars with their tables beside them."""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.export.settings import ExportSettings
    from interleaved_assets.export.write import WrittenImages, write_images
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "settings": ("ExportSettings",),
            "write": ("WrittenImages", "write_images"),
        },
    )

__all__ = ["ExportSettings", "WrittenImages", "write_images"]
