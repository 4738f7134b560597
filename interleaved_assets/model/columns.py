"""The columns of the row model by name and type, for those who only name them: without pyarrow, 0.2 s to import."""

from typing import Final, NamedTuple


class Column(NamedTuple):
    """A column of a table."""

    name: str
    dtype: str
    """As Arrow writes the type: ``double``, ``large_binary``."""
    nullable: bool = True


INTERLEAVED_COLUMNS: Final = (
    Column("sample_id", "string", nullable=False),
    Column("position", "int32", nullable=False),
    Column("modality", "string", nullable=False),
    Column("content_type", "string"),
    Column("text_content", "string"),
    Column("binary_content", "large_binary"),
    Column("source_ref", "string"),
    Column("materialize_error", "string"),
)
"""Reserved columns, in order. One row is one item of a document; position -1 is its metadata row."""
RESERVED_COLUMNS: Final = frozenset(column.name for column in INTERLEAVED_COLUMNS)
REQUIRED_COLUMNS: Final = tuple(column.name for column in INTERLEAVED_COLUMNS if not column.nullable)

METADATA_POSITION: Final = -1

ROW_KEY: Final = ("sample_id", "position", "modality")
IMAGE_KEY: Final = ("sample_id", "position")
