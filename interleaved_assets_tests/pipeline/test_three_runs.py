"""Three runs on one shard and stage, in every order of their steps: a record that stands is always true.

A run is a generator here: it does to its hold and its outputs what a run of a stage does, in a storage that is a dict,
and stops before and behind each look at what stands in the record's place. Two runs of real stages on real files, in
threads, are in ``test_claims.py``.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline import claims
from interleaved_assets.pipeline.claims import Overtaken, take_hold
from interleaved_assets.pipeline.record import Claim, OutputFile, Record

WORKS: Final = {"all the same": "111", "one other": "112", "all others": "123"}
"""What the runs A, B and C make, a letter each."""


@dataclass
class Storage:
    """What lies there: the outputs, and what stands in the record's place."""

    standing: Record | Claim | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    looked: Record | Claim | None = None
    """What the run that now does something saw when it looked."""

    def vouches_for_a_mixture(self) -> bool:
        return isinstance(self.standing, Record) and any(
            self.outputs.get(role) != output.sha256 for role, output in self.standing.outputs.items()
        )


@dataclass
class Runs:
    """Runs on one shard, each of which takes a step when it is told to."""

    works: str
    roles: tuple[str, ...]
    same_bytes: bool
    storage: Storage
    done: list[tuple[str, str]] = field(default_factory=list)
    """Each run and what it did, in the order in which it was done."""
    ended: dict[str, Record | ShardError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._runs = {name: self._run(name, work) for name, work in zip("ABC", self.works, strict=True)}

    def half_a_step(self, name: str) -> None:
        """Look, or do what was looked for; nothing where the run has ended."""
        next(self._runs[name], None)

    def step(self, name: str) -> None:
        self.half_a_step(name)
        self.half_a_step(name)

    def come_last(self, work: str) -> Record | ShardError:
        """Another run, alone."""
        for _ in self._run("last", work):
            pass
        return self.ended["last"]

    def _run(self, name: str, work: str) -> Iterator[None]:
        hold, outputs = None, {}
        try:
            yield from self._look(name)
            hold = take_hold(
                "one", "a", "", {}, code_version=work, inputs={"raw_shards": "v1"}, same_bytes=self.same_bytes
            )
            self.done.append((name, "claim"))
            yield
            for role in self.roles:
                yield from self._look(name)
                hold.check()
                content = f"{role} of {work}" if self.same_bytes else f"{role} of {work} by {name}"
                self.storage.outputs[role] = content
                outputs[role] = OutputFile(uri=role, size=len(content), sha256=content)
                self.done.append((name, "write"))
                yield
            yield from self._look(name)
            record = Record(
                stage="one",
                shard="a",
                code_version=work,
                inputs={"raw_shards": "v1"},
                data_version=work,
                outputs=outputs,
                settings={},
            )
            hold.commit(record)
            self.ended[name] = record
        except Overtaken as error:
            self.ended[name] = error.record
        except ShardError as error:
            self.ended[name] = error
            assert hold is not None
            hold.release()
        self.done.append((name, "end"))

    def _look(self, name: str) -> Iterator[None]:
        seen = self.storage.standing
        self.done.append((name, "look"))
        yield
        self.storage.looked = seen


Begin = Callable[..., Runs]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Runs of such works on a shard that nothing was made of yet."""
    storage = Storage()

    def write(record: Record | Claim | None, uri: str, options: object) -> None:
        storage.standing = record

    monkeypatch.setattr(claims, "read_state", lambda uri, options: storage.looked)
    monkeypatch.setattr(claims, "write_record", write)
    monkeypatch.setattr(claims, "remove_record", lambda uri, options: write(None, uri, options))
    monkeypatch.setattr(claims, "is_there", lambda output, options: len(storage.outputs[output.uri]) == output.size)

    def anew(works: str, roles: tuple[str, ...] = ("rows",), *, same_bytes: bool = True) -> Runs:
        storage.__init__()  # type: ignore[misc]
        return Runs(works, roles, same_bytes, storage)

    return anew


def orders(steps: Mapping[str, int]) -> Iterator[str]:
    """Every order of so many steps of each run."""
    if not any(steps.values()):
        yield ""
    for name, left in steps.items():
        if left:
            for rest in orders({**steps, name: left - 1}):
                yield name + rest


@pytest.mark.parametrize("same_bytes", [True, False])
@pytest.mark.parametrize("works", WORKS.values(), ids=WORKS)
def test_in_every_order_a_record_is_true_at_any_time_and_the_last_to_begin_ends_well(
    begin: Begin, works: str, same_bytes: bool
) -> None:
    for order in orders(dict.fromkeys("ABC", 3)):
        runs = begin(works, same_bytes=same_bytes)
        for name in order:
            runs.step(name)
            # at any time, and so whichever of the runs is killed then
            assert not runs.storage.vouches_for_a_mixture(), order
        assert set(runs.ended) == set("ABC"), order
        assert runs.ended[max("ABC", key=order.index)] == runs.storage.standing, order
        if same_bytes and works == "111":
            assert all(isinstance(ended, Record) for ended in runs.ended.values()), order


@pytest.mark.parametrize("killed", ["A", "B", "C"])
def test_whichever_is_killed_the_next_run_ends_well(begin: Begin, killed: str) -> None:
    for steps in (1, 2):
        for order in orders(dict.fromkeys("ABC", 3) | {killed: steps}):
            for work in "12":
                runs = begin("112")
                for name in order:
                    runs.step(name)
                assert runs.come_last(work) == runs.storage.standing, order
                assert isinstance(runs.storage.standing, Record), order
                assert runs.storage.standing.code_version == work, order
                assert not runs.storage.vouches_for_a_mixture(), order


def test_a_run_goes_on_where_only_the_same_was_in_between(begin: Begin) -> None:
    for works, ends_well in (("111", True), ("121", False)):
        runs = begin(works, ("rows", "ledger"))
        for name in "AABBCAACCC":
            runs.step(name)
        assert isinstance(runs.ended["A"], Record) == ends_well
        assert runs.ended["C"] == runs.storage.standing
        assert not runs.storage.vouches_for_a_mixture()
    assert str(runs.ended["A"]).startswith("shard a: one was given up: another run took it over")


def test_what_another_run_made_while_this_one_was_on_its_way_to_its_claim_is_not_made_again(begin: Begin) -> None:
    runs = begin("111")
    for name in "AAABBB":
        runs.step(name)
    assert runs.done[-2:] == [("B", "look"), ("B", "end")]
    assert runs.ended["B"] == runs.ended["A"] == runs.storage.standing
    runs.storage.outputs["rows"] = "another length"
    assert isinstance(runs.come_last("1"), Record)
    assert not runs.storage.vouches_for_a_mixture()


@pytest.mark.parametrize("roles", [("rows",), ("rows", "ledger")])
@pytest.mark.parametrize("works", ["112", "121", "211", "111"])
def test_harm_takes_another_run_that_begins_and_gets_to_an_output_in_the_moment_behind_a_look(
    begin: Begin, works: str, roles: tuple[str, ...]
) -> None:
    shuffled = random.Random(7)
    steps = list("ABC" * 2 * (len(roles) + 2))
    counts = {"harmless": 0, "true": 0, "a mixture": 0}
    for _ in range(800):
        shuffled.shuffle(steps)
        runs = begin(works, roles)
        mixed = False
        for name in steps:
            runs.half_a_step(name)
            mixed |= runs.storage.vouches_for_a_mixture()
        if _gets_to_an_output_in_a_moment(runs.done):
            counts["a mixture" if mixed else "true"] += 1
        else:
            counts["harmless"] += 1
            assert not mixed, "".join(steps)
    assert counts["harmless"] > 100
    assert works == "111" or counts["a mixture"]


def _gets_to_an_output_in_a_moment(done: list[tuple[str, str]]) -> bool:
    """Whether a run claimed the shard and looked again between another's look and what that did then."""
    for at, (name, what) in enumerate(done):
        if what == "look":
            then = next((later for later in range(at + 1, len(done)) if done[later][0] == name), len(done))
            moment = [step for step in done[at:then] if step[0] != name]
            for other in {other for other, _ in moment}:
                own = [what for who, what in moment if who == other]
                if "claim" in own and "look" in own[own.index("claim") :]:
                    return True
    return False
