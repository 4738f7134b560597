"""Sums of the facts of many shards, one shard at a time. Of each image only the scores are kept."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.stages.dag import SELECTED_FROM
from interleaved_assets.pipeline.stages.names import FINAL_TARS
from interleaved_assets.pipeline.status.status import URGENT, State, Status, StatusLine, status_lines
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.facts import ShardFacts, Tally, tallies
from interleaved_assets.reporting.figures.measures import Measure

_BEFORE_SELECTION: Final = SELECTED_FROM[:-1]
EXAMPLE_ROWS: Final = 6
"""Number of dropped rows shown for each reason."""


class Reason(NamedTuple):
    """A cause of drops at a stage."""

    stage: str
    name: str


class Example(NamedTuple):
    """One dropped row."""

    shard: str
    stage: str
    sample_id: str
    position: int
    modality: str
    measured: float | None
    threshold: float | None
    detail: str | None


@dataclass(frozen=True)
class ShardLine(ShardFacts):
    """A shard's line in the table of the report: its facts without their tables."""

    unaccounted: int = 0
    main_reason: str = ""

    @property
    def error_rows(self) -> int:
        return sum(self.errors.values())

    @property
    def why(self) -> str:
        """Status in words, with the error if there is one."""
        return f"{self.status.text}: {self.problem}" if self.problem else self.status.text

    @property
    def is_current(self) -> bool:
        """True if every stage is done from the present inputs, settings and code."""
        return self.status.state is State.COMPLETE

    @property
    def counted_in_part(self) -> str | None:
        """The last counted stage, if later stages are not counted yet, else None."""
        return self.counted_to if self.counted_to != FINAL_TARS else None

    @property
    def selected_before(self) -> bool:
        """True if selection must run again, so that its counted drops come from earlier inputs, settings or code."""
        is_selected = self.counted_to is not None and self.counted_to not in _BEFORE_SELECTION
        return is_selected and self.status.stage in SELECTED_FROM

    @property
    def keep_rate(self) -> float | None:
        """Share of the images that were kept, or of the rows if there are no images, 0 to 1.

        None for an empty shard, and if selection has not run.
        """
        if self.counted_to in _BEFORE_SELECTION:
            return None
        if self.counts_in.images:
            return self.counts_out.images / self.counts_in.images
        return self.counts_out.rows / self.counts_in.rows if self.counts_in.rows else None


def shards_version(shards: Iterable[tuple[str, Status, Sequence[str]]]) -> str:
    """Return a version that changes with the states of shards and with their published content.

    Each shard is its key, its status, and the versions under which it is published. A report has this version in its
    head, so that one that is older than the shards is recognized.
    """
    lines = sorted(
        f"{key} {status.state} {status.stage} {'' if status.state is State.VANISHED else sorted(published)}"
        for key, status, published in shards
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass
class DatasetAggregate:
    """Totals over shards; 8 bytes for each score of each image, and a few hundred bytes for each shard.

    Attributes:
        measures: the filters and scores to add up, with their bounds, in the order of the report.
        counts_in, counts_out: sums of the counts of the shards.
        rows, images, samples: dropped rows, dropped images and samples with a dropped row, by reason.
        examples: the first rows dropped for each reason: at most :data:`EXAMPLE_ROWS`, and at most half from one shard.
    """

    measures: Sequence[Measure]
    shards: list[ShardLine] = field(default_factory=list)
    counts_in: Counts = field(default_factory=Counts)
    counts_out: Counts = field(default_factory=Counts)
    rows: Counter[Reason] = field(default_factory=Counter)
    images: Counter[Reason] = field(default_factory=Counter)
    samples: Counter[Reason] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[Reason, list[Example]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.distributions = {measure.filter: Distribution(measure) for measure in self.measures}

    def add(self, facts: ShardFacts) -> None:
        """Add one shard; its tables are not kept."""
        by_reason = Counter[Reason]()
        if facts.ledger is not None:
            by_reason = self._add_ledger(facts.key, facts.ledger)
        for distribution in self.distributions.values():
            if (values := facts.values_of(distribution.measure)) is not None:
                distribution.add(values)
        self.errors.update(facts.errors)
        self.counts_in += facts.counts_in
        self.counts_out += facts.counts_out
        # equally frequent reasons are ordered by name, so that the same data gives the same report
        main = min(by_reason, key=lambda reason: (-by_reason[reason], reason.name), default=None)
        self.shards.append(
            ShardLine(
                **{**vars(facts), "scores": None, "ledger": None, "sample_scores": None, "documents": None},
                unaccounted=facts.rows_unaccounted,
                main_reason=main.name if main else "",
            )
        )

    @property
    def scored(self) -> list[Distribution]:
        """The scores that at least one image has or lacks."""
        return [
            distribution for distribution in self.distributions.values() if distribution.count or distribution.missing
        ]

    @property
    def totals(self) -> list[Tally]:
        """Samples, images and rows of all shards: before and after."""
        return tallies(self.counts_in, self.counts_out)

    def by_state(self) -> Counter[State]:
        return Counter(shard.status.state for shard in self.shards)

    def by_status(self) -> list[StatusLine]:
        return status_lines(
            {shard.key: shard.status for shard in self.shards}, {shard.key: shard.problem for shard in self.shards}
        )

    def published(self, state: State) -> list[str]:
        """Return the sorted keys of the shards in this state that have a final tar; of a failed one it is earlier."""
        return sorted(shard.key for shard in self.shards if shard.published and shard.status.state is state)

    def published_twice(self) -> list[tuple[str, ...]]:
        """Return sorted groups of keys with final tars of the same content, by the raw tars or by the final tars."""
        keys: dict[str, list[str]] = {}
        for shard in self.shards:
            for version in shard.published:
                keys.setdefault(version, []).append(shard.key)
        return sorted({tuple(sorted(found)) for found in keys.values() if len(found) > 1})

    def worst(self, count: int | None = None) -> list[ShardLine]:
        """Return the shards to check first: by urgency of the state, then unaccounted rows, low keep rate, errors."""
        ordered = sorted(self.shards, key=_urgency)
        return ordered if count is None else ordered[:count]

    def by_frequency(self) -> list[Reason]:
        """Return the reasons, most dropped rows first."""
        return sorted(self.rows, key=lambda reason: (-self.rows[reason], reason))

    def dropped_by(self, measure: Measure) -> tuple[int, int]:
        """Return the numbers of images and samples that one filter dropped, after the filters before it.

        For a filter that drops images, the samples are those that lost an image to it. Images dropped together with
        their sample have a reason of their own.
        """
        names = {f"{measure.filter}_{end}" for end in ("below", "above", "in", "not_in")}
        reasons = [reason for reason in self.rows if reason.name in names]
        return sum(self.images[reason] for reason in reasons), sum(self.samples[reason] for reason in reasons)

    def _add_ledger(self, shard: str, ledger: pa.Table) -> Counter[Reason]:
        # ledgers are small, so starting threads would take longer than counting
        counts = ledger.group_by(["stage", "reason", "modality"], use_threads=False).aggregate([([], "count_all")])
        by_reason = Counter[Reason]()
        for line in counts.to_pylist():
            reason = Reason(line["stage"], line["reason"])
            by_reason[reason] += line["count_all"]
            if line["modality"] == "image":
                self.images[reason] += line["count_all"]
        self.rows.update(by_reason)
        samples = ledger.group_by(["stage", "reason"], use_threads=False).aggregate([("sample_id", "count_distinct")])
        for line in samples.to_pylist():
            self.samples[Reason(line["stage"], line["reason"])] += line["sample_id_count_distinct"]
        for reason in by_reason:
            known = self.examples.setdefault(reason, [])
            if (room := EXAMPLE_ROWS - len(known)) > 0:
                known += _examples(shard, ledger, reason, min(room, EXAMPLE_ROWS // 2))
        return by_reason


def aggregate(shards: Iterable[ShardFacts], measures: Sequence[Measure]) -> DatasetAggregate:
    """Add up ``shards``, which may be a generator that reads one shard's files at a time."""
    result = DatasetAggregate(measures)
    for facts in shards:
        result.add(facts)
    return result


def _examples(shard: str, ledger: pa.Table, reason: Reason, limit: int) -> list[Example]:
    matches = pc.and_(pc.equal(ledger["stage"], reason.stage), pc.equal(ledger["reason"], reason.name))
    places = pc.indices_nonzero(matches)
    modalities: dict[str, list[int]] = {"image": [], "text": []}
    for place, modality in zip(places.to_pylist(), ledger["modality"].take(places).to_pylist(), strict=True):
        modalities.setdefault(modality, []).append(place)
    # modalities alternate, so that both pictures and texts are shown
    by_turns = [place for turn in itertools.zip_longest(*modalities.values()) for place in turn if place is not None]
    rows = ledger.take(pa.array(by_turns[:limit], pa.int64())).to_pylist()
    return [Example(shard, *(row[name] for name in Example._fields[1:])) for row in rows]


def _urgency(shard: ShardLine) -> tuple[int, bool, float, int, str]:
    rate = shard.keep_rate
    return (
        URGENT.index(shard.status.state),
        shard.unaccounted == 0,
        1.0 if rate is None else rate,
        -shard.error_rows,
        shard.key,
    )
