"""The schema of a table of scores."""

import pyarrow as pa

from interleaved_assets.scoring.protocol.registry import chosen_scorers, score_columns
from interleaved_assets.scoring.protocol.settings import ScorerSettings


def scores_schema(settings: ScorerSettings) -> pa.Schema:
    """Return the schema of the table of image scores or of document scores under these settings.

    The tables are those of :func:`~interleaved_assets.scoring.protocol.score.score_images` and
    :func:`~interleaved_assets.scoring.protocol.texts.score_documents`.
    """
    given = {name: dtype for scorer in chosen_scorers(settings) for name, dtype in scorer.columns.items()}
    types = {name: given.get(name, dtype) for name, dtype, *_ in score_columns(settings)}
    return pa.schema(
        [
            pa.field(name, pa.type_for_alias(types[name]) if isinstance(types[name], str) else types[name], nullable)
            for name, _, nullable, _ in score_columns(settings)
        ]
    )
