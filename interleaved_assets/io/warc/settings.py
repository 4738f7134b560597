"""The settings of reading web archives."""

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class WarcSettings(BaseModel):
    """The pages of web archives (WARC): which of their parts become rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    only_main_content: bool = True
    """If true, navigation, headers, footers, notices and what else is not the page's main content are left out, and
    listed in the ledger as boilerplate. Default true."""
    max_page_bytes: ByteSize = Field(default=ByteSize(8 * 2**20), ge=1024, le=2**30)
    """Largest page that is read, in bytes of its HTML; a larger one has only its metadata row, with the error
    document_too_large. Default 8 MiB."""
