"""The Dagster side: assets, checks, sensors, jobs, resources. The only folder that imports Dagster."""

import warnings

import dagster as dg

# Backfill policies, partitioned checks and observable partitions are "beta" or "preview" in the release that is
# pinned. Tests hold what is used of them; a reader of the terminal can do nothing about it.
for _category in (dg.BetaWarning, dg.PreviewWarning):
    warnings.filterwarnings("ignore", category=_category)
