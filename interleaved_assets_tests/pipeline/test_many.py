import itertools
import threading

import pytest

from interleaved_assets.pipeline.many import as_completed


def test_each_item_comes_with_its_result_or_its_error() -> None:
    def work(number: int, _: object) -> float:
        return 6 / number

    found = dict(as_completed(work, [3, 0, 2], threads=2))
    assert (found[3], found[2]) == (2, 3)
    assert isinstance(found[0], ZeroDivisionError)


def test_work_is_told_when_nobody_waits_for_it() -> None:
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    def work(number: int, stopped: object) -> int:
        if number:
            begun.release()
            assert callable(stopped)
            while not stopped():
                pass
            ended.release()
        return number

    results = as_completed(work, itertools.chain([0, 1], [1] * 5), threads=2)
    assert next(results) == (0, 0)
    assert begun.acquire(timeout=60)
    results.close()  # type: ignore[attr-defined]
    assert ended.acquire(timeout=60)


def test_what_is_no_exception_is_raised() -> None:
    def work(_: int, __: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(as_completed(work, [1], threads=1))
