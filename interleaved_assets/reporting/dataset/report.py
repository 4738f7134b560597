"""The report on the data set: one self-contained HTML page, and a summary as Markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from interleaved_assets.model.shown import cut_list, markdown_cell, markdown_table
from interleaved_assets.pipeline.stages.outputs import LEDGER_STAGES
from interleaved_assets.pipeline.status import EXAMPLES
from interleaved_assets.pipeline.throughput import Throughput
from interleaved_assets.reporting import text
from interleaved_assets.reporting.dataset.about import About
from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate, Example, ShardLine
from interleaved_assets.reporting.dataset.examples import Held
from interleaved_assets.reporting.dataset.explorer import sliders
from interleaved_assets.reporting.distribution import Distribution
from interleaved_assets.reporting.facts import explained_errors
from interleaved_assets.reporting.page import policy_hash, source, template
from interleaved_assets.reporting.plots.figures import reasons_bar, score_charts
from interleaved_assets.selection.settings import SelectionSettings

PERCENTS: Final = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)
HTML_SHARDS: Final = 1000
"""Shards in the table of the page: those to check first. Sums are over all shards."""
MARKDOWN_SHARDS: Final = 10
_SPEED_HEADER: Final = (
    *("stage", "shards made", "shards/s", "images/s", "MB/s", "s in the queue, mean", "s the device waited"),
    "shards/s by host",
)


def html_report(
    data: DatasetAggregate,
    *,
    subtitle: str = "",
    problems: Sequence[str] = (),
    min_keep_rate: float = 0.0,
    about: About | None = None,
    held: Mapping[Example, Held] | None = None,
    selection: SelectionSettings | None = None,
    pages: Mapping[str, str] | None = None,
    throughput: Sequence[Throughput] = (),
) -> str:
    """The report as one HTML page that contains its styles, script and charts, and loads nothing.

    The page follows the light or dark theme of the browser and can be printed. The same arguments give the same page.
    All text from the data is escaped, and a content security policy allows only the script of the page itself.

    Args:
        problems: further warnings shown above the figures, such as a raw root that cannot be listed.
        min_keep_rate: share of rows, and of images, below which a warning says that nearly everything was dropped.
        selection: the thresholds in force, for the threshold explorer; by default those of a new project.
        pages: by key of a shard, the place of the page with its documents, relative to the report.
    """
    selection = selection or SelectionSettings()
    script = Markup("\n").join(source(name) for name in ("dataset_report.js", "explorer.js"))
    style = Markup("\n").join(source(name) for name in ("theme.css", "dataset_report.css", "explorer.css"))
    shards = data.worst(HTML_SHARDS)
    return template("dataset_report.html.j2").render(
        subtitle=subtitle,
        script=script,
        style=style,
        script_hash=policy_hash(script),
        totals=data.totals,
        states=_states(data),
        statuses=data.by_status(),
        problems=[*problems, *_problems(data, min_keep_rate)],
        notes=_notes(data),
        reasons_chart=reasons_bar(data.counts_out.rows, _rows_by_name(data)),
        reasons=[
            (reason, data.rows[reason], data.images[reason], data.samples[reason], data.examples[reason])
            for reason in data.by_frequency()
        ],
        filters=[
            (distribution, *data.dropped_by(distribution.measure))
            for distribution in data.distributions.values()
            if distribution.count or distribution.missing or distribution.measure.has_bounds
        ],
        percents=[f"{percent:g} %" for percent in PERCENTS],
        scores=[
            (distribution, distribution.percentiles(PERCENTS), score_charts(distribution))
            for distribution in data.scored
        ],
        sliders=[{**slider._asdict(), "ticks": slider.ticks} for slider in sliders(data.scored, selection)],
        own_in_force={name: bounds.model_dump(exclude_none=True) for name, bounds in selection.own.items()},
        pages={} if pages is None else pages,
        shards=shards,
        shards_left_out=len(data.shards) - len(shards),
        shard_count=len(data.shards),
        selected_before=sum(shard.selected_before for shard in data.shards),
        errors=explained_errors(data.errors),
        about=about,
        held={} if held is None else held,
        nothing=Held(),
        speed_header=["Stage", *_SPEED_HEADER[1:]],
        speeds=[_speed_cells(done) for done in throughput],
    )


def markdown_report(
    data: DatasetAggregate,
    problems: Sequence[str] = (),
    min_keep_rate: float = 0.0,
    about: About | None = None,
    throughput: Sequence[Throughput] = (),
) -> str:
    """A summary of the report as Markdown: totals, shards that are not current with the reason, drop reasons, scores,
    shards to check first, errors.
    """
    parts = [f"{text.counted(len(data.shards), 'shard')} ({', '.join(_states(data)) or 'none'})"]
    parts += [markdown_cell(about.text)] if about else []
    parts += [f"**{markdown_cell(problem)}**" for problem in (*problems, *_problems(data, min_keep_rate))]
    parts += [markdown_cell(note) for note in _notes(data)]

    def add(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], numeric_from: int = 1) -> None:
        parts.extend([*([f"#### {title}"] if title else []), markdown_table(header, rows, numeric_from)])

    in_and_out = [
        (tally.name, text.count(tally.before), text.count(tally.after), text.share(tally.after, tally.before))
        for tally in data.totals
    ]
    is_current = all(shard.is_current for shard in data.shards)
    if not is_current:
        statuses = [(line.status.state, line.why, line.examples, text.count(line.shards)) for line in data.by_status()]
        add("Shards that are not current, and why", ("state", "why", "for example", "shards"), statuses, 3)
    add("" if is_current else "In and out", ("", "in", "kept", "kept, share"), in_and_out)
    if data.rows:
        counts = (data.rows, data.images, data.samples)
        reasons = [
            (reason.stage, reason.name, *(text.count(count[reason]) for count in counts))
            for reason in data.by_frequency()
        ]
        add("Dropped, by reason", ("stage", "reason", "rows", "images", "samples"), reasons, 2)
    if data.scored:
        header = ("score", "rule", "values", "missing", "passes alone", *(f"p{percent:g}" for percent in PERCENTS))
        add("Scores", header, [_score_cells(distribution) for distribution in data.scored], 2)
    if data.shards:
        cut = f", {MARKDOWN_SHARDS} of {len(data.shards):,}" if len(data.shards) > MARKDOWN_SHARDS else ""
        add(
            f"Shards to check first{cut}",
            ("shard", "status", "main reason", "samples", "images", "images kept", "errors"),
            [_shard_cells(shard) for shard in data.worst(MARKDOWN_SHARDS)],
            3,
        )
    if data.errors:
        errors = [(code, meaning, text.count(number)) for code, meaning, number in explained_errors(data.errors)]
        add("Errors, by code", ("code", "meaning", "rows"), errors, 2)
    if throughput:
        add("Speed of the last runs", _SPEED_HEADER, [_speed_cells(done) for done in throughput])
    return "\n\n".join(parts) + "\n"


def _shard_cells(shard: ShardLine) -> list[str]:
    counts = (text.count(shard.counts_in.samples), text.count(shard.counts_in.images), text.share(shard.keep_rate))
    return [shard.key, shard.why, shard.main_reason or "–", *counts, text.count(shard.error_rows)]


def _speed_cells(done: Throughput) -> list[str]:
    return [
        done.stage,
        text.count(done.made),
        f"{done.rate(done.shards):.2f}",
        f"{done.rate(done.images):,.1f}",
        f"{done.rate(done.image_bytes) / 1e6:,.2f}",
        f"{done.mean_queue_seconds:.1f}" if done.hosts else "–",
        f"{done.device_wait_seconds:.1f}",
        ", ".join(f"{host}: {done.rate(count):.2f}" for host, count in sorted(done.hosts.items())) or "–",
    ]


def _score_cells(distribution: Distribution) -> list[str]:
    percentiles: list[float | None] = [*distribution.percentiles(PERCENTS)] or [None] * len(PERCENTS)
    passes = text.share(distribution.keep_rate) if distribution.measure.has_bounds else "–"
    return [
        distribution.measure.label,
        distribution.measure.rule,
        text.count(distribution.count),
        text.count(distribution.missing),
        passes,
        *(text.score(value) for value in percentiles),
    ]


def _states(data: DatasetAggregate) -> list[str]:
    """``12 complete``, ``1 failed``: the most frequent first."""
    return [f"{number:,} {state}" for state, number in text.most_frequent(data.by_state())]


def _rows_by_name(data: DatasetAggregate) -> Counter[str]:
    """Dropped rows by the name of the reason, over all stages."""
    found = Counter[str]()
    for reason, number in data.rows.items():
        found[reason.name] += number
    return found


def publishing_problems(data: DatasetAggregate) -> list[str]:
    """Warnings about final tars whose raw tar is gone or failed later, and about content that is published twice."""
    found = []
    if gone := data.published_without_raw():
        found.append(
            f"The final tars of {text.counted(len(gone), 'shard')} are still published although their raw tars are "
            f"gone: {cut_list(gone, EXAMPLES)}. “interleaved forget --vanished” lists them and, with --yes, removes "
            "them."
        )
    if before := data.published_before_failing():
        found.append(text.tars_from_before(before))
    if twice := data.published_twice():
        groups = [" = ".join(keys) for keys in twice]
        found.append(
            "The same content is published under several keys, and counts as often as training data: "
            f"{cut_list(groups, EXAMPLES)}."
        )
    return found


def _problems(data: DatasetAggregate, min_keep_rate: float) -> list[str]:
    found = publishing_problems(data)
    if not data.shards:
        found.append("No shard has been materialized yet.")
    if broken := [shard for shard in data.shards if shard.unaccounted]:
        rows = sum(abs(shard.unaccounted) for shard in broken)
        where = f"{text.counted(rows, 'row')} in {text.counted(len(broken), 'shard')}"
        found.append(f"Rows neither kept nor in the ledger, or counted twice: {where}.")
    if data.shards and not data.scored:
        found.append("No scores are stored: there are no distributions and no keep-rate curves.")
    if data.counts_in.rows and not data.counts_out.rows:
        found.append("Everything was dropped.")
    elif lost := [
        f"{text.count(tally.after)} of {text.counted(tally.before, tally.name.removesuffix('s'))} "
        f"({text.share(tally.after, tally.before)})"
        for tally in data.totals
        if tally.name != "samples" and tally.before and tally.after / tally.before < min_keep_rate
    ]:
        found.append(
            f"Nearly everything was dropped: {' and '.join(lost)} kept, and checks.min_keep_rate is "
            f"{min_keep_rate:.1%}. See the reasons below: a threshold or a model may not fit this data."
        )
    return found


def _notes(data: DatasetAggregate) -> list[str]:
    """Notes on the figures that are no warnings: shards not counted to the end, deleted intermediate outputs."""
    found = []
    if in_part := Counter(shard.counted_in_part for shard in data.shards if shard.counted_in_part):
        stages = ", ".join(
            f"{text.counted(in_part[name], 'shard')} up to {name}" for name in LEDGER_STAGES if in_part[name]
        )
        found.append(f"Not fully counted: {stages}. Rows that later stages will drop still count as kept here.")
    if gone := Counter(name for shard in data.shards for name in shard.not_stored):
        tables = ", ".join(f"{name} of {text.counted(shards, 'shard')}" for name, shards in sorted(gone.items()))
        found.append(f"Not among the scores, because deleted: {tables}.")
    return found
