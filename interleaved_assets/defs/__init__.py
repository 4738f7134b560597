"""Dagster definitions: assets, checks, sensors, schedules, jobs. The only folder that imports Dagster."""

import warnings

import dagster as dg

# Backfill policies, partitioned checks and observable partitions are "beta" or "preview" in the pinned release of
# Dagster. Tests cover the parts in use, and users of the terminal cannot act on these warnings.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category)
