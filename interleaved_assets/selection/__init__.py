"""Thresholds over stored scores: keep or drop, with a reason for every drop."""

from interleaved_assets.selection.batch import filter_batch
from interleaved_assets.selection.select import Selection, select
from interleaved_assets.selection.settings import SelectionSettings

__all__ = ["Selection", "SelectionSettings", "filter_batch", "select"]
