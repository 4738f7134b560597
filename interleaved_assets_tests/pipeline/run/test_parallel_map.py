import threading
import time

import pytest

from interleaved_assets.pipeline.run.threads import parallel_map


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.05 if number == 0 else 0)
        return number * 10

    assert list(parallel_map(slow_first, range(20), threads=4)) == [number * 10 for number in range(20)]


def test_a_slow_consumer_bounds_the_number_of_results() -> None:
    begun: list[int] = []
    results = parallel_map(begun.append, range(1000), threads=2)
    next(results)
    time.sleep(0.1)
    assert len(begun) <= 4
    results.close()


def test_an_exception_is_raised_at_the_place_of_its_item() -> None:
    done: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        with lock:
            done.append(number)
        return number

    results = parallel_map(work, range(1000), threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(results)
    assert len(done) < 20


def test_no_items() -> None:
    assert list(parallel_map(str, [], threads=2)) == []
