"""The report on the data set: one self-contained HTML page, and a short summary of it for the UI."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Final, NamedTuple

from markupsafe import Markup

from interleaved_assets.model.digits import percent, percent_bound
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.shown import cut_list, markdown_cell, markdown_table
from interleaved_assets.pipeline.run.throughput import Throughput
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES
from interleaved_assets.pipeline.status.status import EXAMPLES, State
from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate, Example, shards_version
from interleaved_assets.reporting.dataset.examples import Held
from interleaved_assets.reporting.dataset.explorer import sliders
from interleaved_assets.reporting.figures.facts import explained_errors
from interleaved_assets.reporting.figures.measures import measure_of
from interleaved_assets.reporting.plots.figures import reasons_bar, score_charts
from interleaved_assets.reporting.wording import text
from interleaved_assets.reporting.wording.page import policy_hash, source, template
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import SettingLine, Settings, setting_lines

PERCENTS: Final = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)
HTML_SHARDS: Final = 1000
"""Most shards in the table of the page: those to check first. Sums are over all shards."""
_SPEED_HEADER: Final = (
    *("Stage", "shards made", "shards/s", "images/s", "MB/s", "s in the queue, mean", "s the device waited"),
    "shards/s by host",
)


class About(NamedTuple):
    """Date, versions and settings of a report."""

    made: str
    """Date and time in UTC, such as ``2026-01-31 06:00 UTC``."""
    versions: dict[str, str]
    """Version by package, with Python among them."""
    settings: list[SettingLine]

    @property
    def text(self) -> str:
        """Date and versions in one line."""
        return f"Made {self.made} with " + ", ".join(f"{name} {version}" for name, version in self.versions.items())


def about(settings: Settings, now: datetime | None = None) -> About:
    """Return date, versions and settings of a report made now. torch and open_clip are named if CLIP is enabled."""
    packages = ["interleaved-assets", "dagster", *(["torch", "open_clip_torch"] if settings.clip.enabled else [])]
    versions = {name: _version(name) for name in packages} | {"Python": platform.python_version()}
    return About(f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC", versions, list(setting_lines(settings)))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed here"


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
    """Return the report as one HTML page that contains its styles, script and charts, and loads nothing.

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
        of_strings=[
            (measure, rule, *data.dropped_by(measure))
            for measure, rule in (
                (measure_of(name, selection), selection.given(name).strings) for name in selection.active_filters()
            )
            if rule
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
        shards_version=shards_version((shard.key, shard.status, shard.published) for shard in data.shards),
        selected_before=sum(shard.selected_before for shard in data.shards),
        errors=explained_errors(data.errors),
        error_codes=ROW_ERROR_CODES,
        about=about,
        held={} if held is None else held,
        nothing=Held(),
        speed_header=_SPEED_HEADER,
        speeds=[_speed_cells(done) for done in throughput],
    )


def summary(data: DatasetAggregate, problems: Sequence[str] = (), min_keep_rate: float = 0.0) -> str:
    """Return a short summary as Markdown: warnings, totals, and why shards are not current. The page has the rest."""
    parts = [f"{text.counted(len(data.shards), 'shard')} ({', '.join(_states(data)) or 'none'})"]
    parts += [f"**{markdown_cell(problem)}**" for problem in (*problems, *_problems(data, min_keep_rate))]
    parts += [markdown_cell(note) for note in _notes(data)]
    in_and_out = [
        (tally.name, text.count(tally.before), text.count(tally.after), text.share(tally.after, tally.before))
        for tally in data.totals
    ]
    parts.append(markdown_table(("", "in", "kept", "kept, share"), in_and_out))
    if lines := [line for line in data.by_status() if line.status.state is not State.COMPLETE]:
        statuses = [(line.status.state, line.why, line.examples, text.count(line.shards)) for line in lines]
        parts += ["#### Shards that are not current, and why"]
        parts += [markdown_table(("state", "why", "for example", "shards"), statuses, 3)]
    return "\n\n".join(parts) + "\n"


def _speed_cells(done: Throughput) -> list[str]:
    return [
        done.stage,
        text.count(done.made),
        f"{done.rate(done.shards):.2f}",
        # a stage that measures texts reads no image
        f"{done.rate(done.images):,.1f}" if done.image_bytes else "–",
        f"{done.rate(done.image_bytes) / 1e6:,.2f}" if done.image_bytes else "–",
        f"{done.mean_queue_seconds:.1f}" if done.hosts else "–",
        f"{done.device_wait_seconds:.1f}",
        ", ".join(f"{host}: {done.rate(count):.2f}" for host, count in sorted(done.hosts.items())) or "–",
    ]


def _states(data: DatasetAggregate) -> list[str]:
    """Return the shards by state as texts, such as ``12 complete``, ``1 failed``, the most frequent first."""
    return [f"{number:,} {state}" for state, number in text.most_frequent(data.by_state())]


def _rows_by_name(data: DatasetAggregate) -> Counter[str]:
    """Return the dropped rows by the name of the reason, over all stages."""
    found = Counter[str]()
    for reason, number in data.rows.items():
        found[reason.name] += number
    return found


def publishing_problems(data: DatasetAggregate) -> list[str]:
    """Return warnings about final tars whose raw shard is gone or failed later, and about content published twice."""
    found = []
    if gone := data.published(State.VANISHED):
        found.append(
            f"The final tars of {text.counted(len(gone), 'shard')} are still published although their raw tars are "
            f"gone: {cut_list(gone, EXAMPLES)}. “interleaved forget --vanished” lists them and, with --yes, removes "
            "them."
        )
    if before := data.published(State.FAILED):
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
        f"({percent(tally.after / tally.before, min_keep_rate)})"
        for tally in data.totals
        if tally.name != "samples" and tally.before and tally.after / tally.before < min_keep_rate
    ]:
        found.append(
            f"Nearly everything was dropped: {' and '.join(lost)} kept, and checks.min_keep_rate is "
            f"{percent_bound(min_keep_rate)}. See the reasons below: a threshold or a model may not fit this data."
        )
    return found


def _notes(data: DatasetAggregate) -> list[str]:
    """Return notes on the figures that are no warnings: shards not counted to the end, deleted intermediate outputs."""
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
