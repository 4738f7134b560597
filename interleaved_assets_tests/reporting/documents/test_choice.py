"""Which documents a page shows: all, those asked for, or a choice that has every reason."""

import pytest

from interleaved_assets.reporting.documents.choice import Choice, NothingChosen, check_choice, choose_documents

IDS = [f"doc-{number:03d}" for number in range(100)]
REASONS = {"doc-007": ["qr_above"], **{f"doc-{number:03d}": ["sharpness_below"] for number in range(20, 60)}}


def test_a_small_shard_is_shown_whole() -> None:
    assert choose_documents(IDS, REASONS, Choice(100)) == (IDS, "100 documents")
    assert choose_documents([], {}, Choice()) == ([], "0 documents")


def test_of_a_large_shard_every_reason_and_some_whole_documents() -> None:
    chosen, how = choose_documents(IDS, REASONS, Choice(8))
    assert chosen == ["doc-000", "doc-007", "doc-020", "doc-021", "doc-022", "doc-023", "doc-024", "doc-099"]
    assert how == "8 of 100 documents: 6 with dropped rows, of every reason in turn, and 2 others spread evenly"


def test_either_kind_takes_the_room_that_the_other_leaves() -> None:
    assert choose_documents(IDS, {}, Choice(3)) == (
        ["doc-000", "doc-049", "doc-099"],
        "3 of 100 documents: 3 spread evenly",
    )
    lossy = {sample_id: ["qr_above"] for sample_id in IDS[:99]}
    chosen, _ = choose_documents(IDS, lossy, Choice(50))
    assert len(chosen) == 50
    assert "doc-099" in chosen


def test_documents_asked_for_by_reason_and_by_id() -> None:
    chosen = choose_documents(IDS, REASONS, Choice(reasons=("qr_above",)))
    assert chosen == (["doc-007"], "1 of 100 documents with rows dropped for qr_above")
    chosen = choose_documents(IDS, REASONS, Choice(sample_ids=("doc-070", "doc-003")))
    assert chosen == (["doc-003", "doc-070"], "2 of 100 documents named")


def test_a_random_choice_is_that_of_its_seed_and_in_order() -> None:
    chosen, how = choose_documents(IDS, {}, Choice(random=5, seed=1))
    assert chosen == sorted(chosen)
    assert len(set(chosen)) == 5
    assert how == "5 of 100 documents, at random with seed 1"
    assert choose_documents(IDS, {}, Choice(random=5, seed=1)).sample_ids == chosen
    assert choose_documents(IDS, {}, Choice(random=5, seed=2)).sample_ids != chosen
    assert choose_documents(IDS, {}, Choice(random=500, limit=500)).sample_ids == IDS


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(sample_ids=("doc-001", "nobody")), "shard s has no document 'nobody'; it has 100 documents"),
        (Choice(reasons=("blur",)), "shard s lost no row for 'blur'; its reasons: qr_above"),
    ],
)
def test_what_is_not_there_is_refused(choice: Choice, message: str) -> None:
    with pytest.raises(NothingChosen, match=message):
        check_choice(choice, IDS, {"qr_above": 1}, "shard s")
