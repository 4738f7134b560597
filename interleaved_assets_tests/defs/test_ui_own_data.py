"""From the demo to a bucket of one's own, and what becomes of shards that are renamed or deleted, in a real browser."""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Page, expect

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets_tests.browser import appears, keep, new_page
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import ROOT, LiveDagster, live_dagster, opened
from interleaved_assets_tests.s3 import S3Server

pytestmark = pytest.mark.system

DEMO, OWN = ("demo-000", "demo-001"), ("web/part-000", "web/part-001")
TICKS = """
{ sensorOrError(sensorSelector: {
    repositoryLocationName: "interleaved_assets", repositoryName: "__repository__", sensorName: "raw_shard_sensor"
  }) { ... on Sensor { sensorState { ticks(limit: 20) { skipReason } } } } }"""
SOON = "[watch]\ninterval_seconds = 5\nquiet_seconds = 0\n"


@pytest.fixture(scope="module")
def own_bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server, own_bucket: str) -> Iterator[LiveDagster]:
    """The way that README tells: the demo, then both roots in the settings, then ``make ui``."""
    folder = tmp_path_factory.mktemp("project")
    settings = project(folder)
    for seed, name in enumerate(DEMO):
        good_shard(folder / f"raw/{name}.tar", seed=seed)
    for seed, name in enumerate(OWN):
        tar = good_shard(folder / "own.tar", seed=10 + seed)
        s3_server.fs.put_file(str(tar), f"{own_bucket}/raw/{name}.tar")
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    with opened(home) as instance:
        assert materialize_all(instance, settings, register_all(instance, settings.storage))
    roots = f'[storage]\nraw_root = "s3://{own_bucket}/raw"\noutput_root = "s3://{own_bucket}/curated"\n'
    (folder / "interleaved.toml").write_text(roots + SOON)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        with live_dagster(home, folder / "interleaved.toml") as running:
            yield running


@pytest.fixture(scope="module")
def loaded(browser: Browser, live: LiveDagster) -> None:
    """The first load, as docs/operating.md tells it: the sensor is turned on. Then a backfill is launched over all."""
    with new_page(browser, live.url) as page:
        page.goto("/assets/final_tars?view=partitions")
        expect(page.get_by_text("Materialized (2)")).to_be_visible()
        keep(page, "own-data-demo-shards")
        turn_on(page, "raw_shard_sensor")
        page.goto("/assets/final_tars?view=partitions")
        for key in OWN:
            appears(live, page.get_by_title(key, exact=True).first)
        appears(live, page.get_by_text("Materialized (2)"))
        tick_says(page, live, "2 unchanged", "own-data-quiet-tick")
        page.goto("/asset-groups")
        page.get_by_role("button", name="Materialize all (6)").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="All", exact=True).click()
        expect(dialog.get_by_text("2 partitions", exact=True)).to_be_visible()
        keep(page, "own-data-backfill-dialog")
        page.get_by_role("button", name="Launch backfill").click()
        expect(page.get_by_text("Created backfill")).to_be_visible()
        # the sensor's run has materialized both shards; a test that deletes one of them would fail the backfill's run
        live.wait_for(live.is_idle, "the end of the backfill")
        page.goto("/assets/final_tars?view=partitions")
        appears(live, page.get_by_text("Materialized (2)"))


def turn_on(page: Page, sensor: str) -> None:
    page.goto(f"/locations/interleaved_assets/sensors/{sensor}")
    page.locator("tr", has=page.get_by_text("Running", exact=True)).locator("label").click()


def tick_says(page: Page, live: LiveDagster, text: str, name: str) -> None:
    """Wait until a tick of the sensor says this; then see it on hovering over the tick's status, and keep the page."""
    said: list[str] = []

    def is_there() -> bool:
        said[:] = [tick["skipReason"] for tick in live.ask(TICKS)["sensorOrError"]["sensorState"]["ticks"]]
        return text in said

    live.wait_for(is_there, f"a tick that says {text!r}", lambda: f"ticks that say {sorted(set(map(str, said)))}")
    page.goto("/locations/interleaved_assets/sensors/raw_shard_sensor")
    rows = page.locator("tr", has=page.get_by_role("button", name="View logs"))
    expect(rows.first).to_be_visible()
    for row in rows.all():
        row.get_by_text("0 runs requested").first.hover()
        tooltip = page.get_by_text(text, exact=True)
        with suppress(AssertionError):
            expect(tooltip).to_be_visible(timeout=1000)
            keep(page, name)
            return
    raise AssertionError(f"no tick shows {text!r}: {said}")


def test_the_demo_leaves_nothing_behind_and_the_first_load_succeeds(page: Page, loaded: None) -> None:
    page.goto("/assets/final_tars?view=partitions")
    for state in ("Materialized (2)", "Missing (0)", "Failed (0)"):
        expect(page.get_by_text(state)).to_be_visible()
    for key in OWN:
        expect(page.get_by_title(key, exact=True).first).to_be_visible()
    for key in DEMO:
        expect(page.get_by_title(key, exact=True)).to_have_count(0)
    keep(page, "own-data-loaded")


def test_a_partition_deleted_in_the_ui_comes_back(page: Page, live: LiveDagster, loaded: None) -> None:
    page.goto("/assets/final_tars?view=partitions")
    page.get_by_role("button", name="Materialize…").locator("xpath=following::button[1]").click()
    page.get_by_text("Delete partitions").click()
    page.locator(".dagster-dialog").get_by_text("Select a partition").click()
    page.get_by_title(OWN[0], exact=True).last.click()
    page.get_by_text("Delete shards partitions").click()  # beside the list, which closes it
    page.get_by_role("button", name="Delete 1 partition").click()
    expect(page.get_by_text("have been deleted")).to_be_visible()
    keep(page, "own-data-deleted")
    tick_says(page, live, "1 registered, 2 unchanged", "own-data-registered-again")
    page.goto("/assets/final_tars?view=partitions")
    expect(page.get_by_text("Materialized (2)")).to_be_visible()


def test_a_renamed_shard_is_named_and_the_old_one_forgotten(
    page: Page, live: LiveDagster, loaded: None, s3_server: S3Server, own_bucket: str
) -> None:
    s3_server.fs.mv(f"{own_bucket}/raw/{OWN[1]}.tar", f"{own_bucket}/raw/web/renamed.tar")
    page.goto("/assets/final_tars?view=partitions")
    appears(live, page.get_by_text("Materialized (3)"))
    tick_says(
        page, live, "2 unchanged, 1 vanished, their outputs are kept until interleaved forget", "own-data-renamed"
    )

    page.goto("/assets/dataset_report")
    page.get_by_role("button", name=re.compile("Materialize$")).click()
    expect(page.get_by_text("Launched run").first).to_be_visible()
    page.goto("/assets/dataset_report?view=checks&checkDetail=published_once")
    gone = f"The final tars of 1 shard are still published although their raw tars are gone: {OWN[1]}."
    appears(live, page.get_by_text(gone).first)
    expect(page.get_by_text(f"counts as often as training data: {OWN[1]} = web/renamed.").first).to_be_visible()
    keep(page, "own-data-published-twice")

    for config, done in (
        ("{vanished: true}", r"1 shard, \d\d files: nothing was removed, because dry_run is set"),
        ("{vanished: true, dry_run: false}", r"1 shard, \d\d files: removed, with their partitions"),
    ):
        page.goto("/locations/interleaved_assets/jobs/forget_shards/playground")
        expect(page.locator(".CodeMirror").get_by_text("forget")).to_be_visible()  # the config as it was last
        page.locator(".CodeMirror").click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(f"ops: {{forget: {{config: {config}}}}}")
        page.get_by_role("button", name="Launch Run").click()
        appears(live, page.get_by_text(re.compile(done)).first)
        keep(page, "own-data-forgotten")
    page.goto("/assets/final_tars?view=partitions")
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    expect(page.get_by_title(OWN[1], exact=True)).to_have_count(0)
    tars = s3_server.fs.find(f"{own_bucket}/curated/tars")
    assert [path.removeprefix(f"{own_bucket}/curated/tars/") for path in tars] == [f"{OWN[0]}.tar", "web/renamed.tar"]
