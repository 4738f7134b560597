"""Thresholds over stored scores: keep or drop, with a reason for every drop."""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.selection.batch import drop_rows, filter_batch, selection_rows
    from interleaved_assets.selection.filters import (
        ImageFilter,
        SampleCounts,
        SampleFilter,
        known_filters,
        register_filter,
        unregister_filter,
    )
    from interleaved_assets.selection.judge import Selection, select
    from interleaved_assets.selection.other_bounds import Outcome, judged_values, keep_rates, what_if
    from interleaved_assets.selection.positions import join_scores, reindex_positions
    from interleaved_assets.selection.settings import OwnBounds, SelectionSettings
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "batch": ("drop_rows", "filter_batch", "selection_rows"),
            "filters": (
                "ImageFilter",
                "SampleCounts",
                "SampleFilter",
                "known_filters",
                "register_filter",
                "unregister_filter",
            ),
            "positions": ("join_scores", "reindex_positions"),
            "judge": ("Selection", "select"),
            "settings": ("OwnBounds", "SelectionSettings"),
            "other_bounds": ("Outcome", "judged_values", "keep_rates", "what_if"),
        },
    )

__all__ = [
    "ImageFilter",
    "Outcome",
    "OwnBounds",
    "SampleCounts",
    "SampleFilter",
    "Selection",
    "SelectionSettings",
    "drop_rows",
    "filter_batch",
    "join_scores",
    "judged_values",
    "keep_rates",
    "known_filters",
    "register_filter",
    "reindex_positions",
    "select",
    "selection_rows",
    "unregister_filter",
    "what_if",
]
