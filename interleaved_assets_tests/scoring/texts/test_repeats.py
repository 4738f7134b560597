"""Groups of equal elements: equal hashes, hashes that share a slot, owners."""

import numpy as np
import pytest

from interleaved_assets.scoring.texts import repeats as module
from interleaved_assets.scoring.texts.repeats import (
    earlier_equals,
    find_repeats,
    most_frequent,
    skipping_duplicates,
    sum_of_largest,
)
from interleaved_assets_tests.defects import stand_in


def hashes(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_elements_repeat_within_their_owner_only() -> None:
    repeats = find_repeats(hashes([7, 8, 7, 7, 7, 8, 8]), numbers([4, 0, 2, 1]))
    assert (repeats.places.tolist(), repeats.group.tolist()) == ([0, 2, 3], [0, 0, 0])
    assert (repeats.sizes.tolist(), repeats.owners.tolist()) == ([3], [0])


def test_places_are_those_among_all_elements() -> None:
    repeats = find_repeats(hashes([4, 4]), numbers([0, 2]), numbers([10, 30]))
    assert (repeats.places.tolist(), repeats.owners.tolist()) == ([10, 30], [1])


@pytest.mark.parametrize("kinds", [1, 3, 700, 10**6])
@pytest.mark.parametrize("piece", [50, 2**16])
def test_the_last_of_equal_elements_is_found_whatever_slots_they_share(
    kinds: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, module, "_PIECE", piece)
    draw = np.random.default_rng(kinds)
    counts = draw.integers(0, 120, 40)
    elements = draw.integers(0, kinds, counts.sum())
    elements[::2] <<= 45  # these differ in their first bits alone
    owners = np.repeat(np.arange(40), counts)
    last = {(owner, element): place for place, (owner, element) in enumerate(zip(owners, elements, strict=True))}
    expected = [last[key] for key in zip(owners, elements, strict=True)]
    earlier, found = earlier_equals(elements.view(np.uint64), counts)
    assert earlier.tolist() == [place for place, end in enumerate(expected) if end != place]
    assert found.tolist() == [end for place, end in enumerate(expected) if end != place]


def test_of_equally_frequent_elements_the_first_counts() -> None:
    repeats = find_repeats(hashes([1, 2, 2, 1, 3, 5, 6, 6, 6, 5]), numbers([5, 0, 5]))
    place, count = most_frequent(repeats, 3, numbers([0, 5, 5]))
    assert (place.tolist(), count.tolist()) == ([0, 5, 6], [2, 1, 3])


def test_the_largest_groups_of_each_owner() -> None:
    owners, sizes = numbers([0, 0, 0, 0, 3, 3]), numbers([2, 4, 2, 3, 2, 2])
    assert sum_of_largest(owners, sizes, numbers([3, 0, 0, 5])).tolist() == [9, 0, 0, 4]
    assert sum_of_largest(owners, sizes, numbers([1, 0, 0, 1])).tolist() == [4, 0, 0, 2]


def test_no_word_is_in_two_duplicate_runs() -> None:
    # words a b a b a b a b: runs of two words from each place
    repeats = find_repeats(hashes([1, 2, 1, 2, 1, 2, 1]), numbers([7]))
    assert skipping_duplicates(repeats, 2).tolist() == [2, 4, 6]
    assert skipping_duplicates(repeats, 3).tolist() == [2, 5]


@pytest.mark.parametrize("kinds", [1, 2, 5, 60])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_runs_that_were_passed_over_do_not_count_as_seen(kinds: int, length: int) -> None:
    elements = np.random.default_rng(kinds).integers(0, kinds, 300)
    elements[150:200] = elements[:50]
    expected, seen, place = [], set(), 0
    while place < len(elements):
        if elements[place] in seen:
            expected.append(place)
        step = length if elements[place] in seen else 1
        seen.add(elements[place])
        place += step
    repeats = find_repeats(elements.view(np.uint64), numbers([300]))
    assert skipping_duplicates(repeats, length).tolist() == expected


def test_nothing_has_no_groups() -> None:
    repeats = find_repeats(hashes([]), numbers([0, 0]))
    assert sum_of_largest(repeats.owners, repeats.sizes, numbers([0, 0])).tolist() == [0, 0]
    assert most_frequent(repeats, 2, numbers([0, 0]))[1].tolist() == [1, 1]
    assert skipping_duplicates(repeats, 5).tolist() == []
