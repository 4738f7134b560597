"""The settings of reading documents that name their images by URL."""

from pydantic import BaseModel, ConfigDict


class UrlSettings(BaseModel):
    """Documents that name their images by URL, in JSONL and Parquet: the place of the images."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    image_store: str | None = None
    """Folder or URL with what img2dataset downloaded: tars, each with its Parquet file beside it, or Parquet files with
    the bytes of images. Images are named by their URL, or by their SHA-256 in hex. Images that are not in
    it go to the ledger as image_not_in_store, or stay as URLs under errors.on_materialize_error = "warn". Default none:
    all of them."""
