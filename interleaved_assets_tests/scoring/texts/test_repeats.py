"""Groups of equal elements: equal hashes, hashes that differ in their last bits alone, owners."""

import numpy as np
import pytest

from interleaved_assets.scoring.texts.repeats import (
    find_repeats,
    most_frequent,
    repeated_groups,
    sorted_equals,
    sum_of_largest,
)


def hashes(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@pytest.mark.parametrize(
    ("keys", "order", "follows"),
    [
        ([], [], []),
        ([5], [0], [False]),
        ([9 << 60, 1 << 60, 9 << 60, 1 << 60], [1, 3, 0, 2], [False, True, False, True]),
        # the place of a key takes its last bits, in which these differ; equal ones stay together all the same
        ([3, 1, 3, 2, 1], [1, 4, 3, 0, 2], [False, True, False, False, True]),
    ],
)
def test_equal_keys_follow_each_other_in_the_order_of_their_places(
    keys: list[int], order: list[int], follows: list[bool]
) -> None:
    found_order, found_follows = sorted_equals(hashes(keys))
    assert found_order.tolist() == order
    assert found_follows.tolist() == follows


def test_elements_repeat_within_their_owner_only() -> None:
    owners = np.array([0, 0, 0, 0, 1, 1, 2])
    repeats = find_repeats(hashes([7, 8, 7, 7, 7, 8, 8]), owners)
    assert sorted(repeats.places.tolist()) == [0, 2, 3]
    assert (repeats.sizes.tolist(), repeats.owners.tolist(), repeats.firsts.tolist()) == ([3], [0], [0])
    assert sorted(repeats.later().tolist()) == [2, 3]


def test_places_are_those_among_all_elements() -> None:
    repeats = find_repeats(hashes([4, 4]), np.array([6, 6]), np.array([10, 30]))
    assert (repeats.places.tolist(), repeats.owners.tolist(), repeats.firsts.tolist()) == ([10, 30], [6], [10])


def test_of_equally_frequent_elements_the_first_counts() -> None:
    repeats = find_repeats(hashes([1, 2, 2, 1, 3]), np.zeros(5, dtype=np.int64))
    place, count = most_frequent(repeats, 2, np.array([0, 5]))
    assert (place.tolist(), count.tolist()) == ([0, 5], [2, 1])


def test_groups_and_the_largest_of_them() -> None:
    elements = hashes([1, 2, 1, 1, 2, 9, 1, 1, 5])
    owners, parts, counts = np.array([0, 0, 0, 3]), np.array([1, 0, 2, 1]), np.array([3, 1, 2, 3])
    groups, of_parts = repeated_groups(elements, owners, parts, counts)
    assert sorted(zip(groups.owners.tolist(), groups.sizes.tolist(), strict=True)) == [(0, 2), (0, 3), (3, 2)]
    # two elements in the first part of the first owner, and two in that of the last
    found = zip((of_parts.owners >> 32).tolist(), (of_parts.owners & 7).tolist(), of_parts.sizes.tolist(), strict=True)
    assert sorted(found) == [(0, 1, 2), (3, 1, 2)]
    assert sum_of_largest(groups, np.array([1, 0, 0, 5])).tolist() == [3, 0, 0, 2]


def test_nothing_has_no_groups() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    for groups in repeated_groups(hashes([]), nothing, nothing, nothing):
        assert sum_of_largest(groups, np.zeros(2, dtype=np.int64)).tolist() == [0, 0]
