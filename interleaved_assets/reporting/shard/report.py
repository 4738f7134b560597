"""The report of one shard: counts, plots, drops by reason and pictures as Markdown."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from interleaved_assets.model.ledger import drop_reasons
from interleaved_assets.model.shown import markdown_cell, markdown_table
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.facts import ShardFacts, explained_errors, shard_counts
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.reporting.plots.svg import shard_plots, svg_url
from interleaved_assets.reporting.shard.tiles import Tile, markdown_tiles
from interleaved_assets.reporting.wording import text

REPORT_BYTES: Final = 12_000
"""Most bytes of the report of a shard, which is stored with its materialization."""
PLOTS_BYTES: Final = 7_500
"""Most bytes of the plots in it; the page of the shard has all plots."""
_MOST_REASONS: Final = 12


def shard_report(
    facts: ShardFacts, measures: Sequence[Measure], dropped: Sequence[Tile] = (), kept: Sequence[Tile] = ()
) -> str:
    """Return one shard's report as Markdown of at most :data:`REPORT_BYTES` bytes, its pictures included.

    The report has counts, drops by stage and reason, and plots of ``measures`` as far as there is room, the most
    important first. Pictures of ``dropped`` and ``kept`` images fill the remaining room.
    """
    parts = [_summary(facts), _drops(facts.ledger), _plots(facts, measures)]
    if dropped or kept:
        room = REPORT_BYTES - sum(len(part.encode()) + 2 for part in parts)
        all_kept = facts.counts_out.images
        all_dropped = facts.counts_in.images - all_kept
        parts.append(markdown_tiles(dropped, kept, max_bytes=room, all_dropped=all_dropped, all_kept=all_kept))
    return "\n\n".join(parts)


def plots_url(facts: ShardFacts, measures: Sequence[Measure]) -> str:
    """Return the plots of all scores of a shard as one picture: a URL that contains it."""
    return _url(facts, _distributions(facts, measures))


def _distributions(facts: ShardFacts, measures: Sequence[Measure]) -> list[Distribution]:
    distributions = []
    for measure in measures:
        if (values := facts.values_of(measure)) is not None:
            distributions.append(Distribution(measure))
            distributions[-1].add(values)
    return distributions


def _url(facts: ShardFacts, distributions: Sequence[Distribution]) -> str:
    reasons = drop_reasons(facts.ledger) if facts.ledger is not None else {}
    return svg_url(shard_plots(facts.counts_out.rows, reasons, distributions))


def _plots(facts: ShardFacts, measures: Sequence[Measure]) -> str:
    """Return the plots as one picture; scores for which there is no room are named."""
    distributions = _distributions(facts, measures)
    for shown in range(len(distributions), -1, -1):
        url = _url(facts, distributions[:shown])
        if len(url) <= PLOTS_BYTES:
            break
    left_out = ", ".join(markdown_cell(distribution.measure.shown.label) for distribution in distributions[shown:])
    return f"![plots]({url})" + (f"\n\nNot drawn, for want of room: {left_out}." if left_out else "")


def _summary(facts: ShardFacts) -> str:
    parts = [markdown_table(("", "in", "kept", "dropped", "kept, share"), shard_counts(facts))]
    if facts.rows_unaccounted:
        rows = text.counted(abs(facts.rows_unaccounted), "row")
        parts.append(f"**Rows neither kept nor in the ledger, or counted twice: {rows}.**")
    if facts.not_stored:
        parts.append(f"Not shown, because deleted: {', '.join(facts.not_stored)}.")
    if facts.errors:
        cells = [(code, meaning, text.count(number)) for code, meaning, number in explained_errors(facts.errors)]
        parts.append(markdown_table(("error", "meaning", "rows"), cells, numeric_from=2))
    return "\n\n".join(parts)


def _drops(ledger: pa.Table | None) -> str:
    """Return a table of stage, reason and rows by modality, the most frequent first."""
    if ledger is None or not ledger.num_rows:
        return "Nothing was dropped."
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in ledger.group_by(["stage", "reason", "modality"]).aggregate([([], "count_all")]).to_pylist():
        counts[row["stage"], row["reason"]][row["modality"]] += row["count_all"]
    ordered = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    rows = [
        (
            stage,
            reason,
            *map(text.count, (by_modality.total(), by_modality["image"], by_modality["text"])),
            text.share(by_modality.total(), ledger.num_rows),
        )
        for (stage, reason), by_modality in ordered[:_MOST_REASONS]
    ]
    if len(ordered) > len(rows):
        rows.append(("", f"{len(rows)} of {len(ordered)} reasons", "", "", "", ""))
    return markdown_table(("stage", "reason", "rows", "images", "texts", "share of drops"), rows, numeric_from=2)
