"""The settings of reading PDF files."""

from typing import Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, model_validator


class PdfSettings(BaseModel):
    """PDF files (.pdf): what becomes rows, and the limits of the process that parses one."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    page_images: bool = False
    """If true, a page without a text layer, such as a scan, also becomes one image of the whole page, as PNG. Default
    false."""
    page_dpi: int = Field(default=150, ge=36, le=600)
    """Resolution of these images in dots per inch. Default 150."""
    max_pages: int = Field(default=2000, ge=1, le=100_000)
    """Pages that are read; the document gets the error document_too_large if it has more. Default 2000."""
    min_image_side: int = Field(default=16, ge=1, le=10_000)
    """Images with a side below this many pixels are left out: rules, bullets and parts of a background. Default 16."""
    max_seconds: float = Field(default=120, gt=0, le=3600)
    """Seconds of processor time that a file may take, without those of a model. Default 120."""
    max_memory: ByteSize = Field(default=ByteSize(2 * 2**30), ge=256 * 2**20, le=2**40)
    """Address space of the process that parses a file. Default 2 GiB (2147483648)."""
    model_url: str | None = Field(default=None, pattern=r"^https?://")
    """OpenAI-compatible URL, up to and with /v1, of a model that reads pages from their images. Its blocks of a page
    replace those of the parser. A key is taken from the environment variable PDF_MODEL_KEY. Default none."""
    model: str = ""
    """Name of the model at model_url. Default empty."""
    model_pages: Literal["all", "without_text"] = "all"
    """Pages that it reads: all, or those without a text layer. Default all."""
    model_seconds: float = Field(default=120, gt=0, le=3600)
    """Seconds that it may take for a page; a request that fails is sent three times at most. Default 120."""

    @model_validator(mode="after")
    def _model_has_a_name(self) -> Self:
        if self.model_url is not None and not self.model:
            raise ValueError("model_url needs model, the name of the model there")
        return self
