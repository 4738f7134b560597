"""Two runs on one shard and stage at once, in every order of their steps: every valid record describes the outputs.

Each run is a thread that begins, writes one output, then another, and ends. A run that is killed stops after one of its
steps, for good.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import InterleavedError, ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import RAW_SHARDS, OutputFile, Record
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.pipeline.runs import SteppedRun, pause, valid_record

STEPS = 4  # begin, write the rows, write the ledger, end
BEGIN, ROWS, LEDGER, END = range(STEPS)


def stage_of(version: int, mark: bytes = b"") -> Stage:
    """Writes two outputs, of the raw shard's content and the version; ``mark`` for a stage for many shards, whose bytes
    may differ from run to run."""

    def write(shard: ShardTask) -> Work:
        assert shard.raw is not None
        with open_input(shard.raw.uri) as file:
            content = file.read() + b" by version %d" % version + mark
        outputs = {}
        for role, uri in {"rows": shard.paths.output("one"), "ledger": shard.paths.ledger("one")}.items():
            pause()
            with atomic_output(uri) as out:
                out.write(content + role.encode())
            outputs[role] = OutputFile.of(out)
        pause()
        return Work(outputs=outputs)

    def write_together(
        shards: Iterator[ShardTask], settings: Settings
    ) -> Iterator[tuple[str, Work | InterleavedError]]:
        return ((shard.key, write(shard)) for shard in shards)

    work = {"together": write_together} if mark else {"run": write}
    return Stage("one", (RAW_SHARDS,), version, lambda settings: {}, **work)  # type: ignore[arg-type]


@dataclass
class Place:
    """A shard, and what differs between two runs on it."""

    folder: Path
    kind: str

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.settings = project(self.folder)
        self.raw.write_bytes(b"first")
        self.record_uri = self.settings.storage.shard("a").record("one")
        marks = (b" A ", b" B ") if self.kind == "other bytes" else (b"", b"")
        self.stages = {"A": stage_of(1, marks[0]), "B": stage_of(2 if self.kind == "other code" else 1, marks[1])}

    @property
    def raw(self) -> Path:
        return self.folder / "raw" / "a.tar"

    def run(self, name: str) -> SteppedRun:
        return SteppedRun(lambda: take_through(self.stages[name], "a", self.settings))

    def go_through(self, order: str) -> dict[str, SteppedRun]:
        """Let the runs take their steps in this order, such as ``AABBBBAA``, and kill those that have not ended."""
        runs, begun = {name: self.run(name) for name in "AB"}, set()
        for name in order:
            if self.kind == "other raw" and begun and name not in begun:
                self.raw.write_bytes(b"second, replaced")
            begun.add(name)
            runs[name].step()
            self.valid()
        for run in runs.values():
            run.kill()
        return runs

    def valid(self) -> Record | None:
        """The valid record; asserts that each output has the content that it names."""
        found = valid_record(self.record_uri)
        if found is not None:
            for output in found.outputs.values():
                assert xxhash.xxh3_128_hexdigest(Path(output.uri).read_bytes()) == output.checksum
        return found


def orders(steps_of_a: int, steps_of_b: int) -> Iterator[str]:
    """Every order of so many steps of A and of B in which A begins."""
    total = steps_of_a + steps_of_b
    for places in itertools.combinations(range(1, total), steps_of_a - 1):
        yield "".join("A" if place in (0, *places) else "B" for place in range(total))


def places_of(order: str, name: str) -> list[int]:
    return [place for place, who in enumerate(order) if who == name]


KINDS = ["same", "other code", "other raw", "other bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_well_where_both_outputs_are_its_own_or_the_other_did_the_same_work(
    tmp_path: Path, kind: str
) -> None:
    for number, order in enumerate(orders(STEPS, STEPS)):
        place = Place(tmp_path / str(number), kind)
        runs = place.go_through(order)
        at = {name: places_of(order, name) for name in "AB"}
        for name, other in ("AB", "BA"):
            result, end = runs[name].result, at[name][END]
            replaced = [at[name][step] < at[other][step] < end for step in (ROWS, LEDGER)]
            raw_changed = kind == "other raw" and name == "A" and at["B"][BEGIN] < end
            if kind == "same" or not (any(replaced) or raw_changed):
                assert isinstance(result, StageOutcome), order
            elif kind == "other bytes" and all(replaced) and at[other][END] < end:
                assert isinstance(result, StageOutcome), order
                assert result.unchanged
                assert result.record == runs[other].result.record, order  # type: ignore[union-attr]
            else:
                assert isinstance(result, ShardError), order
                reason = "changed while it was read" if raw_changed else "another run replaced outputs of one while"
                assert reason in str(result), order
        last = take_through(place.stages["B"], "a", place.settings)
        assert place.valid() == last.record, order
        assert last.unchanged or kind != "same"
        assert take_through(place.stages["B"], "a", place.settings).unchanged


@pytest.mark.parametrize("kind", [*KINDS[::2], *(pytest.param(kind, marks=pytest.mark.system) for kind in KINDS[1::2])])
@pytest.mark.parametrize("killed", ["A", "B"])
def test_whichever_run_is_killed_a_valid_record_is_true_and_the_next_run_ends_well(
    tmp_path: Path, kind: str, killed: str
) -> None:
    number = itertools.count()
    for steps in range(1, STEPS):
        for order in orders(steps if killed == "A" else STEPS, steps if killed == "B" else STEPS):
            place = Place(tmp_path / str(next(number)), kind)
            runs = place.go_through(order)
            ended = runs["B" if killed == "A" else "A"].result
            if (left := place.valid()) is not None:
                assert isinstance(ended, StageOutcome), order
                assert ended.record == left, order
            again = place.run("B")
            again.finish()
            assert isinstance(again.result, StageOutcome), order
            assert place.valid() == again.result.record, order


def test_a_failure_removes_only_the_record_that_existed_before(tmp_path: Path) -> None:
    place = Place(tmp_path / "a", "other code")

    def fail(shard: ShardTask) -> Work:
        raise ShardError("bad")

    def fail_behind_another_run(shard: ShardTask) -> Work:
        place.run("B").finish()
        raise ShardError("bad")

    take_through(place.stages["A"], "a", place.settings)
    for run, left in ((fail, None), (fail_behind_another_run, "2"), (fail, None)):
        failing = Stage("one", (RAW_SHARDS,), 3, lambda settings: {}, run)
        with pytest.raises(ShardError, match=r"^bad$"):
            take_through(failing, "a", place.settings)
        found = place.valid()
        assert found is None if left is None else found is not None and found.code_version.startswith(left)


def test_outputs_deleted_before_the_end_of_the_run_are_not_recorded(tmp_path: Path) -> None:
    place = Place(tmp_path / "a", "same")
    run = place.run("A")
    for _ in range(STEPS - 1):
        run.step()
    Path(place.settings.storage.shard("a").ledger("one")).unlink()
    run.finish()
    assert str(run.result) == (
        "shard a: another run replaced outputs of one while this one wrote them; materialize the shard again"
    )
    assert place.valid() is None
