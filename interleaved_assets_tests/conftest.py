"""Fixtures for all tests, the option under which a skipped test is a failure, and what keeps out the machine's part."""

import fcntl
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest

from interleaved_assets.demo.shards import demo_shard
from interleaved_assets.io.storage import atomic_output
from interleaved_assets_tests.projects import settings, tmp_path
from interleaved_assets_tests.s3 import api_of_s3_read_once, bucket, s3_environment, s3_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

__all__ = ["api_of_s3_read_once", "bucket", "s3_environment", "s3_server", "settings", "tmp_path"]

# The same examples in every run, and as much time for each as the machine takes; more of them in `make test-all`.
for profile, max_examples in {"ours": 15, "many": 200}.items():
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        derandomize=True,
        max_examples=max_examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("ours")

# What is imported and collected stays; the garbage collector need not go through it again and again.
gc.disable()

# For the processes that tests start as well: nothing is written to the home folder, and no proxy asked for loopback.
os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
os.environ |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")

# A shell that starts pytest in the background has it ignore Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test or module is a failure")


# Files of `make test-all` that take longest. Two processes take files in this order; the first file mostly waits for
# the next minute, while the other process computes.
_LONGEST_FIRST = (
    *("test_live_nightly", "test_ui_own_data", "test_live_kill", "test_live", "test_ui_backfill", "test_ui_why"),
    *("test_ui", "test_ui_stale"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    """Collect garbage from here on, a tenth as often as Python does: each run of Dagster makes many objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000)
    gc.enable()


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


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a shard of the demo by its name, drawn once for all processes of pytest-xdist; to be read only."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "demo-raw"

    def shard(name: str) -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / name).exists():
                with atomic_output(str(folder / name)) as out:
                    out.write(demo_shard(name))
        return folder / name

    return shard


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    # imported here, so that only tests of the UI load Playwright
    from interleaved_assets_tests.browser import chromium

    with chromium() as running:
        yield running
