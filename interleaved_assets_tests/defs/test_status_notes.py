"""Status notes: published when they change, and at most a limited number with one report."""

from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.partitions import SHARDS, shards
from interleaved_assets.defs.steps import status_notes as module
from interleaved_assets.defs.steps.status_notes import note_changes, publish_status_notes
from interleaved_assets_tests.documents import project


@pytest.mark.parametrize("content", ["null", "[1]", '{"a": 5}', "", '{"a'])
def test_a_damaged_file_of_notes_is_written_again(tmp_path: Path, content: str) -> None:
    settings = project(tmp_path)
    file = tmp_path / "out/state/status_notes.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)

    @dg.asset(partitions_def=shards)
    def final_tars() -> None: ...

    @dg.asset
    def report(context: dg.AssetExecutionContext) -> None:
        publish_status_notes(context, {"a": "stale"}, ["a"], settings.storage)

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(SHARDS, ["a"])
        assert dg.materialize([report, final_tars], instance=instance, selection=[report]).success
    assert file.read_text() == '{\n"a": "stale"\n}'


def test_new_statuses_are_published() -> None:
    found = note_changes({"a": "stale", "b": "missing"}, notes={}, observed={}, materialized={"a": 5})
    assert found == ({"a": "stale", "b": "missing"}, {"a": "stale", "b": "missing"}, 0)


def test_a_note_that_the_page_shows_is_not_published_again() -> None:
    found = note_changes({"a": "stale"}, notes={"a": "stale"}, observed={"a": 9}, materialized={"a": 5})
    assert found == ({}, {"a": "stale"}, 0)


@pytest.mark.parametrize(
    ("observed", "materialized"),
    [
        ({"a": 9}, {"a": 12}),  # made again since: the page shows the materialization alone
        ({}, {"a": 12}),  # another Dagster instance, whose pages have no note
    ],
)
def test_a_note_that_the_page_no_longer_shows_is_published_again(
    observed: dict[str, int], materialized: dict[str, int]
) -> None:
    assert note_changes({"a": "stale"}, {"a": "stale"}, observed, materialized).publish == {"a": "stale"}


def test_a_changed_reason_is_published() -> None:
    assert note_changes({"a": "no filtered"}, {"a": "stale"}, {"a": 9}, {}).publish == {"a": "no filtered"}


def test_a_shard_that_is_current_again_without_a_run_gets_one_note() -> None:
    found = note_changes({}, notes={"a": "stale"}, observed={"a": 9}, materialized={"a": 5})
    assert found == ({"a": "complete"}, {}, 0)


def test_a_shard_that_was_made_again_gets_no_note() -> None:
    assert note_changes({}, notes={"a": "stale"}, observed={"a": 9}, materialized={"a": 12}) == ({}, {}, 0)


def test_notes_above_the_limit_follow_with_later_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_MOST", 3)
    statuses = {str(number): "stale" for number in range(8)}
    notes: dict[str, str] = {}
    observed: dict[str, int] = {}
    sizes = []
    for event in range(4):
        found = note_changes(statuses, notes, observed, {})
        sizes.append((len(found.publish), found.left_out))
        notes = found.in_force
        observed |= dict.fromkeys(found.publish, event)
    assert sizes == [(3, 5), (3, 2), (2, 0), (0, 0)]
    assert notes == statuses


def test_notes_left_out_stay_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_MOST", 1)
    found = note_changes({"a": "stale"}, {"b": "stale", "c": "stale"}, {"b": 8, "c": 9}, {})
    assert found == ({"a": "stale"}, {"a": "stale", "b": "stale", "c": "stale"}, 2)
