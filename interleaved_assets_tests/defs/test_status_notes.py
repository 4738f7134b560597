"""What is told on the pages of shards: news, once, and never more than fits."""

import pytest

from interleaved_assets.defs import status_notes as module
from interleaved_assets.defs.status_notes import news


def test_what_was_not_told_is_news() -> None:
    found = news({"a": "stale", "b": "missing"}, told={}, said={}, made={"a": 5})
    assert found == ({"a": "stale", "b": "missing"}, {"a": "stale", "b": "missing"}, 0)


def test_what_stands_there_already_is_none() -> None:
    found = news({"a": "stale"}, told={"a": "stale"}, said={"a": 9}, made={"a": 5})
    assert found == ({}, {"a": "stale"}, 0)


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({"a": 9}, {"a": 12}),  # made again since: the page shows the materialization alone
        ({}, {"a": 12}),  # another instance of Dagster, whose pages never said so
    ],
)
def test_what_no_longer_shows_is_told_again(said: dict[str, int], made: dict[str, int]) -> None:
    assert news({"a": "stale"}, {"a": "stale"}, said, made).tell == {"a": "stale"}


def test_another_reason_is_news() -> None:
    assert news({"a": "no filtered"}, {"a": "stale"}, {"a": 9}, {}).tell == {"a": "no filtered"}


def test_a_shard_that_is_current_without_having_been_made_again_is_told_so_once() -> None:
    found = news({}, told={"a": "stale"}, said={"a": 9}, made={"a": 5})
    assert found == ({"a": "complete"}, {}, 0)


def test_a_shard_that_was_made_again_needs_no_word() -> None:
    assert news({}, told={"a": "stale"}, said={"a": 9}, made={"a": 12}) == ({}, {}, 0)


def test_what_is_too_much_is_left_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_MOST", 3)
    statuses = {str(number): "stale" for number in range(8)}
    told: dict[str, str] = {}
    said: dict[str, int] = {}
    sizes = []
    for event in range(4):
        found = news(statuses, told, said, {})
        sizes.append((len(found.tell), found.left_out))
        told = found.told
        said |= dict.fromkeys(found.tell, event)
    assert sizes == [(3, 5), (3, 2), (2, 0), (0, 0)]
    assert told == statuses


def test_what_is_left_out_stays_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_MOST", 1)
    found = news({"a": "stale"}, {"b": "stale", "c": "stale"}, {"b": 8, "c": 9}, {})
    assert found == ({"a": "stale"}, {"a": "stale", "b": "stale", "c": "stale"}, 2)
