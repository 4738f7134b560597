"""Settings of the image export: the section ``[export]`` of ``interleaved.toml``."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ExportSettings(BaseModel):
    """Settings of the tars of images and of their tables."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    enabled: bool = False
    """Define the asset image_export, which writes the images of each shard that selection has kept as tars, with a
    Parquet file beside each. Default false."""
    images_per_tar: int = Field(default=1000, ge=1, le=1_000_000)
    """Most images in one tar, 1 to 1000000. Default 1000."""
    remove_image_data: bool = True
    """Leave the bytes of the images out of the Parquet file beside a tar; false writes them there too, in the column
    binary_content. Default true."""
    deterministic_name: bool = True
    """Put a hash of the content into the names of the files, so that the same images get the same files; false takes a
    random one. Default true."""
    names: Literal["id", "sequence"] = "id"
    """Names of the images in their tars: id, made from sample id and position and the same at every export; sequence,
    numbers within the shard. Default id."""
    reencode: Literal["jpeg"] | None = None
    """Format to write every image in anew. jpeg: upright, in grey or RGB, transparent parts white. Default none: the
    original bytes."""
    quality: int = Field(default=90, ge=1, le=100)
    """Quality of images that are written anew as JPEG, 1 to 100. Default 90."""
    verbose: bool = False
    """Log each tar that was written. Default false."""

    def version(self) -> dict[str, object]:
        """Return the settings that the files depend on."""
        unused = {"quality"} if self.reencode is None else set()
        return self.model_dump(mode="json", exclude={"enabled", "verbose"} | unused)

    def stage_version(self, max_pixels: int) -> dict[str, object]:
        """Return :meth:`version`, and ``scoring.max_pixels``, which matters only to images that are written anew."""
        limits = {"max_pixels": max_pixels} if self.reencode else {}
        return {"export": self.version(), **limits}
