import os
import sys
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.executors import build_executor
from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.defs.runs import NO_TELEMETRY
from interleaved_assets_tests.deploy.toy import said, toy_job

FIRST_TWO = [dg.AssetKey("before"), dg.AssetKey("on_gpu")]


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "interleaved.toml"
    file.touch()
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(file))
    return file


def with_executor(file: Path, name: str) -> Settings:
    file.write_text(f'[run]\nexecutor = "{name}"\n', encoding="utf-8")
    return load_settings(file)


def test_steps_run_in_the_process_of_the_run_by_default(settings_file: Path) -> None:
    assert build_executor(load_settings(settings_file).run) is dg.in_process_executor
    with dg.DagsterInstance.ephemeral() as instance:
        assert toy_job().execute_in_process(instance=instance).success
        assert {facts["pid"] for facts in said(instance).values()} == {os.getpid()}


def test_multiprocess_gives_each_step_a_process(settings_file: Path, tmp_path: Path) -> None:
    with_executor(settings_file, "multiprocess")
    with (
        dg.DagsterInstance.local_temp(str(tmp_path), overrides=NO_TELEMETRY) as instance,
        dg.execute_job(dg.reconstructable(toy_job), instance=instance, asset_selection=FIRST_TWO) as result,
    ):
        assert result.success
        pids = [facts["pid"] for facts in said(instance).values()]
    assert len({os.getpid(), *pids}) == 3


def test_kubernetes_jobs(settings_file: Path) -> None:
    assert build_executor(with_executor(settings_file, "k8s").run).name == "k8s"


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("k8s", "dagster_k8s")])
def test_an_absent_package_is_named_with_its_extra_before_anything_runs(
    settings_file: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    settings = with_executor(settings_file, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = (
        rf"run\.executor = \"{name}\" needs .*{package.replace('_', '-')}.*pip install 'interleaved-assets\[{name}\]'"
    )
    with pytest.raises(MissingDependency, match=message):
        build_executor(settings.run)
