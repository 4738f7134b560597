"""Fixtures for all tests, and the option under which a skipped test is a failure."""

from collections.abc import Generator
from typing import TypeVar

import pytest

from interleaved_assets_tests.s3 import bucket, s3_environment, s3_server

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

__all__ = ["bucket", "s3_environment", "s3_server"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test or module is a failure")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _strict((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strict((yield), collector.config)


def _strict(report: Report, config: pytest.Config) -> Report:
    if report.skipped and config.getoption("no_skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and --no-skips is given: {report.longrepr}"
    return report
