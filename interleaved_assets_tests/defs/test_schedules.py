import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.defs.schedules import ranges_of
from interleaved_assets.pipeline.staleness import CURRENT


@pytest.mark.parametrize(
    ("statuses", "at_most", "expected"),
    [
        ("......", 3, []),
        ("x.....", 3, ["aa"]),
        ("x.x...", 3, ["ac"]),
        ("x..x..", 3, ["aa", "dd"]),
        ("xxxxxx", 4, ["ad", "ef"]),
        (".x-x..", 6, ["bb", "dd"]),
        ("......", 1, []),
    ],
)
def test_ranges(statuses: str, at_most: int, expected: list[str]) -> None:
    keys = list("abcdef")
    given_statuses = {
        key: CURRENT if mark == "." else "no normalized"
        for key, mark in zip(keys, statuses, strict=True)
        if mark != "-"
    }
    assert [first + last for first, last in ranges_of(keys, given_statuses, at_most)] == expected


@given(st.lists(st.sampled_from(".x-"), max_size=40), st.integers(1, 7))
def test_ranges_hold_every_stale_shard_once_and_no_vanished_one(marks: list[str], at_most: int) -> None:
    keys = [f"{number:02}" for number in range(len(marks))]
    statuses = {key: CURRENT if mark == "." else "stale" for key, mark in zip(keys, marks, strict=True) if mark != "-"}
    covered = [
        key
        for first, last in ranges_of(keys, statuses, at_most)
        for key in keys[keys.index(first) : keys.index(last) + 1]
    ]
    assert len(covered) == len(set(covered))
    assert {key for key, status in statuses.items() if status != CURRENT} <= set(covered) <= set(statuses)
    assert all(keys.index(last) - keys.index(first) < at_most for first, last in ranges_of(keys, statuses, at_most))
