"""The columns of a table of CLIP scores, with the range of each."""

from interleaved_assets.model.columns import Column
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.protocol.scorer import KEY_COLUMNS, Range
from interleaved_assets.scoring.scores.clip import CLIP, EMBEDDING


def clip_columns(settings: ClipSettings) -> tuple[Column, ...]:
    """Return the columns of a CLIP score table: one row an image, in the order of the samples and their rows.

    ``clip_score`` is the highest cosine similarity to a text of the image's sample, -1 to 1. ``clip_text_position`` is
    the position of that text's row; of equally similar texts, that of the first. Each head fills a column with its own
    range. ``embedding`` exists with ``keep_embeddings``: float16, of length 1, with the model's width. ``clip_error``
    is ``"<code>: <detail>"`` for an image without ``clip_score``, null otherwise. With the code ``no_text``, the heads'
    columns and the embedding are filled nevertheless.
    """
    known = {column.name: column for column in CLIP.described_columns()}
    embedding = [EMBEDDING] if settings.keep_embeddings else []
    names = ("clip_score", "clip_text_position", *settings.head_columns, *embedding, "clip_error")
    return (*KEY_COLUMNS, *(known.get(name, Column(name, "double")) for name in names))


def clip_ranges(settings: ClipSettings) -> dict[str, Range]:
    """Return the range of each column of that table; a head has a known range only if it ends in a sigmoid."""
    heads = {
        column: Range(0, 1) if settings.heads[name].output_squash == "sigmoid" else Range()
        for column, name in settings.head_columns.items()
    }
    return {**CLIP.ranges, **heads}
