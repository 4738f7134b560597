"""The report on the data set: sums over its shards, charts, and the page that holds them."""

from typing import Final

REPORT_FILE: Final = "dataset_report.html"
"""Name of the report below the output root."""
