from .settings import ExportSettings as ExportSettings
from .write import WrittenImages as WrittenImages
from .write import write_images as write_images
