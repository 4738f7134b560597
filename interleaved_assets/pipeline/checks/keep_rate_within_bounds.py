"""Check of the share of rows that selection keeps of a shard, against fixed bounds and against other shards."""

import statistics
from collections.abc import Sequence
from typing import Final

from interleaved_assets.model.digits import percent, percent_bound
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict
from interleaved_assets.pipeline.run.record import Record, record_of
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.run.threads import READERS, found_or_error
from interleaved_assets.settings import Settings


def keep_rate(record: Record) -> float | None:
    """Return rows kept ÷ rows in, 0 to 1; None for a shard without rows."""
    return record.counts_out.rows / record.counts_in.rows if record.counts_in.rows else None


def image_keep_rate(record: Record) -> float | None:
    """Return images kept ÷ images in, 0 to 1; None for a shard without images."""
    return record.counts_out.images / record.counts_in.images if record.counts_in.images else None


def keep_rates_of(keys: Sequence[str], stage: Stage, settings: Settings) -> dict[str, float]:
    """Return :func:`keep_rate` by shard for at most ``checks.other_shards`` of ``keys``, at equal distances.

    Shards selected under other settings are left out, because their rates are not comparable. Shards whose record
    cannot be read are left out too.
    """
    version, storage = stage.code_version(settings), settings.storage

    def stored(key: str) -> Record | None:
        return record_of(storage.shard(key), stage.name)

    found = found_or_error(stored, evenly(keys, settings.checks.other_shards), threads=READERS)
    alike = {key: one for key, one in found if isinstance(one, Record) and one.code_version == version}
    return {key: rate for key, record in alike.items() if (rate := keep_rate(record)) is not None}


def evenly(keys: Sequence[str], at_most: int) -> Sequence[str]:
    """Return at most ``at_most`` of ``keys``, at equal distances."""
    if len(keys) <= at_most:
        return keys
    return [keys[number * len(keys) // at_most] for number in range(at_most)]


def judge_keep_rate(record: Record, basis: Basis) -> Verdict:
    """Check the keep rate against the fixed bounds and, with enough other shards, against their median."""
    bounds = basis.settings.checks
    rate = keep_rate(record)
    if rate is None:
        return Verdict(True, "WARN", "the shard has no rows", {"rows_in": 0})
    others = [other for key, other in basis.keep_rates.items() if key != record.shard]
    figures: dict[str, float | int | str] = {"keep_rate": rate, "other_shards": len(others)}
    problems = []
    of_images = image_keep_rate(record)
    if of_images is not None:
        figures["image_keep_rate"] = of_images
    if not bounds.min_keep_rate <= rate <= bounds.max_keep_rate:
        problems.append(f"outside of {percent_bound(bounds.min_keep_rate)} to {percent_bound(bounds.max_keep_rate)}")
    if of_images is not None and of_images < bounds.min_keep_rate:
        problems.append(
            f"{percent(of_images, bounds.min_keep_rate)} of {record.counts_in.images} images, below "
            f"{percent_bound(bounds.min_keep_rate)}"
        )
    too_few = min(rate, rate if of_images is None else of_images) < bounds.min_keep_rate
    if len(others) < bounds.min_other_shards:
        compared = f"{len(others)} other shards are too few to compare with"
    else:
        median = statistics.median(others)  # which a few unusual shards do not change
        distance = round(abs(rate - median), 9)  # 0.8 - 0.5 is above 0.3
        figures |= {"median_keep_rate": median, "distance_from_median": distance}
        compared = f"the median of {len(others)} other shards is {percent(median)}"
        if distance > bounds.max_keep_rate_distance:
            problems.append(
                f"{percent(distance, bounds.max_keep_rate_distance)} from the median, more than "
                f"{percent_bound(bounds.max_keep_rate_distance)}"
            )
    kept = percent(rate, bounds.min_keep_rate, bounds.max_keep_rate)
    summary = f"{kept} of {record.counts_in.rows} rows kept" + "".join(f", {problem}" for problem in problems)
    return Verdict(not problems, "ERROR" if too_few else "WARN", f"{summary}; {compared}", figures)


KEEP_RATE: Final = ShardCheck(
    "keep_rate_within_bounds",
    "Selection keeps of the shard\n\n"
    "* a share of rows between checks.min_keep_rate and checks.max_keep_rate;\n"
    "* a share of images of at least checks.min_keep_rate;\n"
    "* a share of rows no farther than checks.max_keep_rate_distance from the median of other shards selected under "
    "the same settings: those of the same run, and up to checks.other_shards more. It is not compared with fewer than "
    "checks.min_other_shards.\n\n"
    "An error below checks.min_keep_rate, otherwise a warning.",
    judge_keep_rate,
    compares=True,
)
