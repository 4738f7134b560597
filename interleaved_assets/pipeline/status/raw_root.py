"""Check of the raw root: it can be listed, and its newest shard is not too old."""

import datetime
from collections.abc import Collection, Mapping
from typing import Any, Final

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.raw.listing import list_raw_files
from interleaved_assets.pipeline.run.check import Verdict
from interleaved_assets.settings import StorageSettings

RAW_ROOT_FRESH: Final = "raw_root_fresh"
DESCRIPTION: Final = (
    "The raw root and its folders can be listed (an error where not), and its newest shard landed within the last "
    "checks.max_raw_age_hours, where that is set (a warning where not). Runs by itself with the "
    "schedule daily_report. A time in the future, from a clock that is off, counts as now. Registered "
    "shards that are not there any more are counted; their outputs are left alone."
)
# Names of the time of a file's last change in fsspec info: local, S3, Google, Azure.
_TIMES: Final = ("mtime", "LastModified", "updated", "last_modified", "modified")


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
    listing = {shard.key: info for shard, info in found.files}
    figures: dict[str, float | int | str] = {
        "shards": len(listing),
        "ignored_files": len(found.ignored),
        "bytes": sum(int(info["size"]) for info in listing.values()),
        "vanished_shards": len(set(registered) - listing.keys()),
    }
    times = {key: time for key, info in listing.items() if (time := _modified(info)) is not None}
    if not times:
        if not listing:
            # a disk that is not mounted also appears as an empty folder
            return Verdict(False, "WARN", f"no shard below {storage.raw_root}", figures)
        return Verdict(max_age_hours is None, "WARN", "the storage gives no times of its files", figures)
    newest = max(times, key=lambda key: times[key])
    hours = max(0.0, now - times[newest]) / 3600
    figures |= {
        "newest_shard": str(listing[newest]["name"]),
        "newest_landed_at": times[newest],
        "age_hours": hours,
    }
    summary = f"the newest of {len(listing)} shards landed {hours:.1f} hours ago"
    if unknown := len(listing) - len(times):
        summary += f", not counting {unknown} that the storage gives no time of"
    if max_age_hours is None:
        return Verdict(True, "WARN", f"{summary}; checks.max_raw_age_hours sets no limit", figures)
    return Verdict(hours <= max_age_hours, "WARN", f"{summary}, and {max_age_hours:g} are allowed", figures)


def _modified(info: Mapping[str, Any]) -> float | None:
    """Return the time of a file's last change in seconds since 1970; None if it is missing or not in ISO format."""
    for name in _TIMES:
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            try:
                value = datetime.datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime.datetime):
            return value.timestamp()
    return None
