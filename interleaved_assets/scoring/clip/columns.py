"""The columns of a table of CLIP scores, and what each can hold."""

from typing import Final

from interleaved_assets.model.columns import Column
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.ranges import Range

EMBEDDING: Final = "embedding"
# Embeddings have length 1, and are stored as float16.
_LENGTH_OF_ONE: Final = Range(0.99, 1.01)


def clip_columns(settings: ClipSettings) -> tuple[Column, ...]:
    """Columns of a CLIP score table: one row an image, in the order of the samples and their rows.

    ``clip_score`` is the highest cosine similarity to a text of the image's sample, -1 to 1, and ``clip_text_position``
    the position of that text's row; of equal ones the first. Each head fills a column with its own range. ``embedding``
    is there with ``keep_embeddings``, float16, of length 1; its width is that of the model. ``clip_error`` is
    ``"<code>: <detail>"`` where there is no ``clip_score``, null otherwise; where it is ``no_text``, the heads' columns
    and the embedding are filled still.
    """
    return (
        Column("sample_id", "string", nullable=False),
        Column("position", "int32", nullable=False),
        Column("clip_score", "double"),
        Column("clip_text_position", "int32"),
        *(Column(name, "double") for name in settings.head_columns),
        *([Column(EMBEDDING, "list<item: halffloat>")] if settings.keep_embeddings else []),
        Column("clip_error", "string"),
    )


def clip_ranges(settings: ClipSettings) -> dict[str, Range]:
    """What each column of that table can hold; a head's own range is known where a sigmoid is behind it."""
    heads = {
        column: Range(0, 1) if settings.heads[name].output_squash == "sigmoid" else Range()
        for column, name in settings.head_columns.items()
    }
    return {"clip_score": Range(-1, 1), "clip_text_position": Range(low=0), **heads, EMBEDDING: _LENGTH_OF_ONE}
