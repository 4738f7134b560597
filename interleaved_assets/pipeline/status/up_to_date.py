"""Check of each stage over all shards: every shard is current at the stage."""

from collections.abc import Mapping
from typing import Final

from interleaved_assets.pipeline.run.check import Verdict
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus
from interleaved_assets.pipeline.status.status import Status, in_short, status_lines

UP_TO_DATE: Final = "up_to_date"
DESCRIPTION: Final = (
    "Every shard below the raw root is done at this stage, from the present inputs, settings and code (a warning where "
    "not, with the shards and the reasons). Runs with the schedule daily_report."
)


def shards_not_current(dataset: DatasetStatus) -> dict[str, dict[str, Status]]:
    """Return, by stage and shard, why the shard is not current there; every record is read once."""
    found: dict[str, dict[str, Status]] = {name: {} for name in dataset.stages.stages}
    for key, status, records, error in dataset.shards():
        stages = dict.fromkeys(found, status) if error else dataset.not_current(key, records)
        for name, why in stages.items():
            found[name][key] = why
    return found


def judge_up_to_date(statuses: Mapping[str, Status], shards: int, problem: str = "") -> Verdict:
    """Return the verdict on one stage, from the statuses of the shards that are not current there.

    ``problem`` is the error if the raw root or a folder of it cannot be listed: new and changed shards are not known
    then, and the check does not pass.
    """
    figures = {"shards": shards, "shards_not_current": len(statuses)}
    if not statuses and problem:
        return Verdict(False, "WARN", f"new and changed raw shards cannot be recognized: {problem}", figures)
    if not statuses:
        return Verdict(True, "WARN", f"all {shards:,} shards are current", figures)
    summary = f"{len(statuses):,} of {shards:,} shards are not current: {in_short(status_lines(statuses))}"
    return Verdict(False, "WARN", summary, figures)
