"""The checks over all shards: that the raw root can be listed and is not too old, and that stages are up to date."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.metadata import rounded
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.requests import BRING_UP_TO_DATE
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.raw.listing import list_raw_files
from interleaved_assets.pipeline.run.check import UP_TO_DATE, Verdict
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus, read_dataset_status
from interleaved_assets.pipeline.status.status import Status, StatusLine, in_short, status_lines
from interleaved_assets.settings import Settings, StorageSettings

RAW_ROOT_CHECK: Final = dg.AssetCheckKey(dg.AssetKey(RAW_SHARDS), "raw_root_fresh")
_RAW_ROOT_DESCRIPTION: Final = (
    "The raw root and its folders can be listed (an error where not), and its newest shard landed within the last "
    "checks.max_raw_age_hours, where that is set (a warning where not). Runs by itself with the "
    "schedule daily_report. A time in the future, from a clock that is off, counts as now. Registered "
    "shards that are not there any more are counted; their outputs are left alone."
)
_UP_TO_DATE_DESCRIPTION: Final = (
    "Every shard below the raw root is done at this stage, from the present inputs, settings and code (a warning where "
    "not, with the shards and the reasons). Runs with the schedule daily_report, and at the end of a run of stages. "
    "*Execution failed* says that such a run failed and did not reach it: press **Execute**."
)
_LINES_SHOWN: Final = 50
_MOST_AFTER_A_RUN: Final = 1_000
"""Number of shards above which runs of stages leave the check out: Dagster adds it to each run of a backfill."""


def build_raw_root_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check that the raw root can be listed and that its newest shard is not too old."""

    @dg.asset_check(asset=RAW_SHARDS, name=RAW_ROOT_CHECK.name, description=_RAW_ROOT_DESCRIPTION)
    def raw_root_fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        registered = context.instance.get_dynamic_partitions(SHARDS)
        verdict = judge_raw_root(settings.storage, settings.checks.max_raw_age_hours, time.time(), registered)
        figures: dict[str, Any] = {name: rounded(value) for name, value in verdict.figures.items()}
        if (landed := figures.pop("newest_landed_at", None)) is not None:
            figures["newest_landed"] = dg.MetadataValue.timestamp(float(landed))
        return _result(verdict, figures, RAW_ROOT_CHECK)

    return raw_root_fresh


def judge_raw_root(
    storage: StorageSettings, max_age_hours: float | None, now: float, registered: Collection[str] = ()
) -> Verdict:
    """Check that the raw root can be listed and that its newest shard is at most ``max_age_hours`` old.

    ``now`` is in seconds since 1970, UTC. Shards in ``registered`` without a raw shard are counted as vanished.
    """
    try:
        found = list_raw_files(storage)
    except InterleavedError as error:
        return Verdict(False, "ERROR", str(error), {"error": str(error)})
    if found.unlisted:
        return Verdict(
            False, "ERROR", found.problem, {"error": found.problem, "folders_not_listed": len(found.unlisted)}
        )
    figures: dict[str, float | int | str] = {
        "shards": len(found.shards),
        "ignored_files": len(found.ignored),
        "bytes": sum(shard.size for shard in found.shards),
        "vanished_shards": len(set(registered) - {shard.key for shard in found.shards}),
    }
    landed = {shard.uri: shard.landed for shard in found.shards if shard.landed is not None}
    if not landed:
        if not found.shards:
            # a disk that is not mounted also appears as an empty folder
            return Verdict(False, "WARN", f"no shard below {storage.raw_root}", figures)
        return Verdict(max_age_hours is None, "WARN", "the storage gives no times of its files", figures)
    newest = max(landed, key=lambda uri: landed[uri])
    hours = max(0.0, now - landed[newest]) / 3600
    figures |= {"newest_shard": newest, "newest_landed_at": landed[newest], "age_hours": hours}
    summary = f"the newest of {len(found.shards)} shards landed {hours:.1f} hours ago"
    if unknown := len(found.shards) - len(landed):
        summary += f", not counting {unknown} that the storage gives no time of"
    if max_age_hours is None:
        return Verdict(True, "WARN", f"{summary}; checks.max_raw_age_hours sets no limit", figures)
    return Verdict(hours <= max_age_hours, "WARN", f"{summary}, and {max_age_hours:g} are allowed", figures)


def up_to_date_checks(settings: Settings) -> dg.AssetSelection:
    """Return the selection of the check ``up_to_date`` of every stage."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(dg.AssetKey(name), UP_TO_DATE) for name in stage_dag(settings)))


def build_up_to_date_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check of each stage that every shard is current there, which Dagster itself does not show.

    Dagster adds the check to runs of stages, and a large backfill has hundreds of runs, each of which would read all
    records at its end. If there are many shards, these runs leave it out.
    """
    stages = stage_dag(settings)

    @dg.multi_asset_check(
        name=UP_TO_DATE,
        specs=[dg.AssetCheckSpec(UP_TO_DATE, asset=name, description=_UP_TO_DATE_DESCRIPTION) for name in stages],
        can_subset=True,
    )
    def up_to_date(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        yield from up_to_date_results(context, stages, settings)

    return up_to_date


def up_to_date_results(
    context: dg.AssetCheckExecutionContext, stages: Iterable[str], settings: Settings
) -> Iterator[dg.AssetCheckResult]:
    """Yield a result for each selected stage; none after a run of stages over a large data set."""
    registered = context.instance.get_dynamic_partitions(SHARDS)
    of_stages = context.run.asset_selection or context.run.job_name == BRING_UP_TO_DATE
    if of_stages and len(registered) > _MOST_AFTER_A_RUN:
        context.log.info(f"not evaluated with each run over {len(registered)} shards, but by the schedule daily_report")
        return
    failed = progress(context.instance, stages, registered).failed
    dataset = read_dataset_status(settings, registered, failed)
    shards = len(dataset.keys) if dataset.raws is None else len(dataset.raws)
    not_current = shards_not_current(dataset)
    for key in sorted(context.selected_asset_check_keys):
        statuses = not_current[key.asset_key.path[-1]]
        problems = {key: dataset.problem_of(key, status) for key, status in statuses.items()}
        verdict = judge_up_to_date(statuses, shards, dataset.problem)
        figures: dict[str, Any] = dict(verdict.figures)
        if statuses:
            figures = {"not_current": _status_table(status_lines(statuses, problems)), **figures}
        if dataset.problem:
            figures["raw_root"] = f"changed raw shards cannot be recognized: {dataset.problem}"
        yield _result(verdict, figures, key)


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


def _result(verdict: Verdict, figures: Mapping[str, Any], key: dg.AssetCheckKey) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity(verdict.severity),
        description=verdict.summary,
        metadata=figures,
    )


def _status_table(lines: Sequence[StatusLine]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {"state": str(line.status.state), "why": line.why, "shards": line.shards, "for example": line.examples}
            )
            for line in lines[:_LINES_SHOWN]
        ]
    )
