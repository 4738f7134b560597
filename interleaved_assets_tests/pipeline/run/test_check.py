"""One verdict of several checks."""

from interleaved_assets.pipeline.run.check import ShardCheck, Verdict, combine

A, B, C = (ShardCheck(name, "", lambda _, __: GOOD) for name in "abc")
COUNTS = ShardCheck("counts", "", lambda _, __: GOOD, counts=True)
GOOD = Verdict(True, "ERROR", "4 rows", {"rows": 4})
ODD = Verdict(False, "WARN", "1 of 4 rows", {"errors": 1})
BAD = Verdict(False, "ERROR", "2 keys repeat", {"repeated_keys": 2})


def test_where_all_pass_each_is_listed_without_its_figures() -> None:
    assert combine({A: GOOD, B: GOOD}) == Verdict(True, "WARN", "", {"a": "passed: 4 rows", "b": "passed: 4 rows"})


def test_the_check_that_counts_shows_its_figures_first_and_always() -> None:
    passed = combine({A: GOOD, COUNTS: GOOD})
    assert list(passed.figures.items()) == [("rows", 4), ("a", "passed: 4 rows"), ("counts", "passed: 4 rows")]
    failed = combine({A: BAD, COUNTS: ODD})
    assert failed.figures == {
        "errors": 1,
        "a": "error: 2 keys repeat",
        "counts": "warning: 1 of 4 rows",
        "a/repeated_keys": 2,
    }


def test_the_worst_severity_counts_and_failures_have_their_figures() -> None:
    warned = combine({A: GOOD, B: ODD})
    assert (warned.passed, warned.severity, warned.summary) == (False, "WARN", "b: 1 of 4 rows")
    failed = combine({A: GOOD, B: ODD, C: BAD})
    assert (failed.passed, failed.severity) == (False, "ERROR")
    assert failed.summary == "b: 1 of 4 rows; c: 2 keys repeat"
    assert failed.figures == {
        "a": "passed: 4 rows",
        "b": "warning: 1 of 4 rows",
        "c": "error: 2 keys repeat",
        "b/errors": 1,
        "c/repeated_keys": 2,
    }
