"""Two runs on one shard and stage at once, in every order of their steps: what is recorded is always true.

Each run is a thread that begins (reads its input, claims the shard), writes one output, then another, and ends. A run
that is killed stops after one of its steps, for good.
"""

import hashlib
import itertools
import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageUnavailable
from interleaved_assets.pipeline.execute import Outcome, Shard, Stage, Work, take_through
from interleaved_assets.pipeline.record import (
    RAW_SHARDS,
    Claim,
    OutputFile,
    Record,
    ShardPaths,
    read_state,
)
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project

STEPS = 4  # begin, write the rows, write the ledger, end
_WAIT_SECONDS = 20


class Killed(BaseException):
    """Ends a thread as a signal ends a process: nothing of ours catches it."""


@dataclass
class Run:
    """One run of the stage, which takes a step when it is told to."""

    settings: Settings
    version: int = 1
    mark: bytes = b""
    """Written behind the content, for a stage for many shards, whose bytes may differ from run to run."""
    result: Outcome | BaseException | None = None
    _orders: "queue.Queue[str]" = field(default_factory=queue.Queue)
    _done: "queue.Queue[str]" = field(default_factory=queue.Queue)
    _thread: threading.Thread | None = None

    def step(self) -> None:
        """Take the next step, and wait until it is done; nothing where the run has ended."""
        if self.result is not None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work)
            self._thread.start()
        else:
            self._orders.put("go on")
        self._done.get(timeout=_WAIT_SECONDS)

    def kill(self) -> None:
        """Stop where it is; nothing where it has ended, or never began."""
        if self._thread is not None and self._thread.is_alive():
            self._orders.put("die")
            self._thread.join(_WAIT_SECONDS)

    def _work(self) -> None:
        try:
            self.result = take_through(self.stage, "a", self.settings)
        except (InterleavedError, Killed) as error:
            self.result = error
        self._done.put("ended")

    @property
    def stage(self) -> Stage:
        work = {"together": self._write_together} if self.mark else {"run": self._write}
        return Stage("one", (RAW_SHARDS,), self.version, lambda settings: {}, **work)

    def _write_together(
        self, shards: Iterator[Shard], settings: Settings
    ) -> Iterator[tuple[str, Work | InterleavedError]]:
        for shard in shards:
            try:
                with shard.committing():
                    yield shard.key, self._write(shard)
            except InterleavedError as error:
                yield shard.key, error

    def _pause(self) -> None:
        self._done.put("step")
        if self._orders.get(timeout=_WAIT_SECONDS) == "die":
            raise Killed

    def _write(self, shard: Shard) -> Work:
        assert shard.raw is not None
        with open_input(shard.raw.uri) as file:
            content = file.read() + b" by version %d" % self.version + self.mark
        outputs = {}
        for role, uri in {"rows": shard.paths.output("one"), "ledger": shard.paths.ledger("one")}.items():
            self._pause()
            with atomic_output(uri) as out:
                out.write(content + role.encode())
            outputs[role] = OutputFile.of(out)
        self._pause()
        return Work(outputs=outputs)


@dataclass
class Place:
    """A shard, and what may happen between the beginnings of two runs on it."""

    folder: Path
    kind: str

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.settings = project(self.folder)
        self.raw.write_bytes(b"first")
        self.record_uri = ShardPaths(output_root=self.settings.storage.output_root, key="a").record("one")

    @property
    def raw(self) -> Path:
        return self.folder / "raw" / "a.tar"

    def runs(self) -> dict[str, Run]:
        other = {"other code": 2}.get(self.kind, 1)
        marks = (b" A ", b" B ") if self.kind == "other bytes" else (b"", b"")
        return {"A": Run(self.settings, 1, marks[0]), "B": Run(self.settings, other, marks[1])}

    def go_through(self, order: str) -> dict[str, Run]:
        """Let the runs take their steps in this order, such as ``AABBBBAA``, and kill those that have not ended."""
        runs, begun = self.runs(), set()
        for name in order:
            if self.kind == "other raw" and begun and name not in begun:
                self.raw.write_bytes(b"second, replaced")
            begun.add(name)
            runs[name].step()
        for run in runs.values():
            run.kill()
        return runs

    def standing(self) -> Record | Claim | None:
        """What stands in the end, after a look at what no record may say: anything but what lies there."""
        found = read_state(self.record_uri, {})
        if isinstance(found, Record):
            for output in found.outputs.values():
                assert hashlib.sha256(Path(output.uri).read_bytes()).hexdigest() == output.sha256
        return found


def orders(steps_of_a: int, steps_of_b: int) -> Iterator[str]:
    """Every order of so many steps of A and of B in which A begins."""
    total = steps_of_a + steps_of_b
    for places in itertools.combinations(range(1, total), steps_of_a - 1):
        yield "".join("A" if place in (0, *places) else "B" for place in range(total))


KINDS = ["same", "other code", "other raw", "other bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_runs_both_end_well_where_they_make_the_same_and_else_the_later_one(tmp_path: Path, kind: str) -> None:
    for number, order in enumerate(orders(STEPS, STEPS)):
        place = Place(tmp_path / str(number), kind)
        runs = place.go_through(order)
        one, other = runs["A"].result, runs["B"].result
        assert isinstance(other, Outcome), order
        assert place.standing() == other.record, order
        if kind == "same" or order == "AAAABBBB":
            assert isinstance(one, Outcome), order
            assert kind in ("other code", "other raw") or one.record == other.record
        elif isinstance(one, Outcome):
            # the same from the same inputs, if not with the same bytes: what the other has recorded stands
            assert (kind, one.record, one.unchanged) == ("other bytes", other.record, True), order
            assert order.rindex("B") < order.rindex("A"), order
        else:
            assert isinstance(one, ShardError), order
            assert re.match(
                r"shard a: (one was given up: another run (took it over|has recorded)|.*changed while it)", str(one)
            )
        assert take_through(runs["B"].stage, "a", place.settings).unchanged


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("killed", ["A", "B"])
def test_whatever_is_killed_what_is_recorded_lies_there(tmp_path: Path, kind: str, killed: str) -> None:
    number = itertools.count()
    for steps in range(1, STEPS):
        for order in orders(steps if killed == "A" else STEPS, steps if killed == "B" else STEPS):
            place = Place(tmp_path / str(next(number)), kind)
            runs = place.go_through(order)
            left = place.standing()
            ended = runs["B" if killed == "A" else "A"].result
            if isinstance(left, Record):
                assert isinstance(ended, Outcome), order
                assert ended.record == left, order
            elif killed == "B":
                assert isinstance(left, Claim)  # B's, which A left alone
                assert left.code_version.startswith("2" if kind == "other code" else "1"), order
            again = Run(place.settings, runs["B"].version, runs["B"].mark)
            for _ in range(STEPS):
                again.step()
            assert isinstance(again.result, Outcome), order
            assert place.standing() == again.result.record, order


@pytest.mark.parametrize("other", ["killed", "ends"])
def test_a_run_that_makes_the_same_does_not_hide_one_in_between_that_makes_something_else(
    tmp_path: Path, other: str
) -> None:
    place = Place(tmp_path / "a", "other code")
    first, second = place.runs().values()
    third = Run(place.settings, first.version)
    for run in (first, first, second, second, third):
        run.step()
    if other == "killed":
        second.kill()
    for run in (first, first, third, second, second, third, third):
        run.step()
        place.standing()
    for run, outcome in ((first, "another run took it over"), *([(second, "another run")] if other == "ends" else [])):
        assert isinstance(run.result, ShardError)
        assert f"shard a: one was given up: {outcome}" in str(run.result)
    assert isinstance(third.result, Outcome)
    assert place.standing() == third.result.record
    assert take_through(third.stage, "a", place.settings).unchanged


def test_a_failure_takes_its_own_claim_back_and_no_other(tmp_path: Path) -> None:
    place = Place(tmp_path / "a", "other code")

    def fail(shard: Shard) -> Work:
        raise ShardError("bad")

    def be_overtaken(shard: Shard) -> Work:
        runs["B"].step()
        raise ShardError("bad")

    for run, left in ((fail, None), (be_overtaken, "2")):
        runs = place.runs()
        with pytest.raises(ShardError, match=r"^bad$"):
            take_through(Stage("one", (RAW_SHARDS,), 1, lambda settings: {}, run), "a", place.settings)
        found = place.standing()
        assert found is None if left is None else isinstance(found, Claim) and found.code_version.startswith(left)
    runs["B"].kill()


def test_a_claim_that_is_gone_or_a_record_whose_output_is_gone_ends_the_run(tmp_path: Path) -> None:
    place = Place(tmp_path / "a", "same")
    run = place.runs()["A"]
    run.step()
    Path(place.record_uri).unlink()
    run.step()
    assert isinstance(run.result, ShardError)
    assert str(run.result) == (
        "shard a: one was given up: another run has failed at it, or its record was deleted; "
        "materialize the shard again"
    )
    first, second = place.runs().values()
    first.step()
    for _ in range(STEPS):
        second.step()
    assert isinstance(second.result, Outcome)
    Path(second.result.record.outputs["rows"].uri).unlink()
    first.step()
    assert isinstance(first.result, ShardError)
    assert "another run has recorded what it made; materialize the shard again" in str(first.result)


def test_what_keeps_a_claim_from_being_taken_back_is_logged_beside_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path / "a", "same")

    def unavailable(uri: str, options: object) -> None:
        raise StorageUnavailable("the storage is away")

    def fail(shard: Shard) -> Work:
        monkeypatch.setattr("interleaved_assets.pipeline.claims.remove_record", unavailable)
        raise ShardError("bad")

    with pytest.raises(ShardError, match=r"^bad$"):
        take_through(Stage("one", (RAW_SHARDS,), 1, lambda settings: {}, fail), "a", place.settings)
    assert "shard a: the claim on one stays: the storage is away" in caplog.text
    assert isinstance(place.standing(), Claim)
