"""The check whether every shard is current, as it is declared; ``pipeline/up_to_date.py`` judges it."""

from typing import Final

UP_TO_DATE: Final = "up_to_date"
DESCRIPTION: Final = (
    "Every shard below the raw root is done at this stage, from the present inputs, settings and code (a warning where "
    "not, with the shards and the reasons). Runs with the schedule daily_report."
)
