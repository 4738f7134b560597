"""Thresholds over stored scores: keep or drop, with a reason for every drop."""

from interleaved_assets.selection.batch import drop_rows, filter_batch, selection_rows
from interleaved_assets.selection.filters import (
    ImageFilter,
    SampleCounts,
    SampleFilter,
    known_filters,
    register_filter,
    unregister_filter,
)
from interleaved_assets.selection.positions import join_scores, reindex_positions
from interleaved_assets.selection.select import Selection, select
from interleaved_assets.selection.settings import OwnBounds, SelectionSettings
from interleaved_assets.selection.what_if import Outcome, judged_values, keep_rates, what_if

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
