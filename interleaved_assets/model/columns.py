"""The columns of the row model by name and type. The module does not load pyarrow, which takes 0.2 s to import."""

from typing import Final, NamedTuple


class Column(NamedTuple):
    """A column of a table."""

    name: str
    dtype: str
    """The name that Arrow has for the type: ``double``, ``large_binary``."""
    nullable: bool = True
    meaning: str = ""
    """The content of the column, in a sentence."""


INTERLEAVED_COLUMNS: Final = (
    Column("sample_id", "string", False, "The document."),
    Column(
        "position",
        "int32",
        False,
        "The place in the document, from 0; -1 is the row with the document's other fields.",
    ),
    Column("modality", "string", False, "text, image or metadata; others, such as table, are kept as they are."),
    Column("content_type", "string", meaning="The MIME type, such as image/jpeg."),
    Column("text_content", "string", meaning="The text, on rows of texts."),
    Column(
        "binary_content",
        "large_binary",
        meaning="The bytes of the image, on rows of images; null where source_ref leads to them.",
    ),
    Column(
        "source_ref",
        "string",
        meaning="Where the bytes were read: JSON with path, member, byte_offset, byte_size, frame_index and part.",
    ),
    Column(
        "materialize_error",
        "string",
        meaning="'code: detail' of a row that could not be read, else null (docs/errors.md).",
    ),
)
"""Reserved columns, in order. One row is one item of a document; position -1 is its metadata row."""
RESERVED_COLUMNS: Final = frozenset(column.name for column in INTERLEAVED_COLUMNS)
REQUIRED_COLUMNS: Final = tuple(column.name for column in INTERLEAVED_COLUMNS if not column.nullable)

METADATA_POSITION: Final = -1

BINARY_SIZE: Final = "_binary_size"
"""Column of rows by reference: bytes of an image that ``binary_content`` lacks and ``source_ref`` leads to."""
BINARY_SIZE_TYPE: Final = "uint64"
"""The type of that column. A field of a document has another type, whatever its name."""

ROW_KEY: Final = ("sample_id", "position", "modality")
IMAGE_KEY: Final = ("sample_id", "position")
