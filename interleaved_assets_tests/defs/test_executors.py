import os
import re
import sys
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.executors import build_executor, gpu_tags
from interleaved_assets.model.errors import MissingDependency, SettingsError
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


@pytest.mark.system
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


def test_an_executor_of_ones_own_by_its_name(settings_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings_file.parent / "my_team").mkdir()
    (settings_file.parent / "my_team/executors.py").write_text(
        'import dagster as dg\nslow = dg.multiprocess_executor.configured({"max_concurrent": 1})\nnumber = 3\n'
    )
    monkeypatch.syspath_prepend(settings_file.parent)
    found = build_executor(with_executor(settings_file, "my_team.executors:slow").run)
    assert isinstance(found, dg.ExecutorDefinition)
    assert found is sys.modules["my_team.executors"].slow
    for name, message in {
        "my_team.executors:number": "my_team.executors:number is no executor of Dagster but int: name a dg.Executor",
        "my_team.executors:none": "run.executor: my_team.executors has no none",
        "my_team.none:slow": "my_team.none cannot be imported: No module named 'my_team.none'. Install its package",
    }.items():
        with pytest.raises(SettingsError, match=re.escape(message)):
            build_executor(with_executor(settings_file, name).run)
    for name in ("celery", "my_team.executors", ":x", "a:b:c", "..x:y", "os:path; x", ""):
        with pytest.raises(SettingsError, match="is neither in_process, multiprocess, ray, k8s nor module:attribute"):
            with_executor(settings_file, name)


def test_the_step_with_the_model_has_a_tag_for_each_executor() -> None:
    tags = gpu_tags("cuda")
    assert tags["dagster-ray/config"] == {"num_gpus": 1}
    assert tags["dagster-celery/queue"] == "gpu"
    assert "dagster-k8s/config" in tags
    assert gpu_tags("cpu") == {}


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("k8s", "dagster_k8s")])
def test_an_absent_package_is_named_with_its_extra_before_anything_runs(
    settings_file: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    settings = with_executor(settings_file, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = (
        rf"run\.executor = \"{name}\" needs .*{package.replace('_', '-')}.*pip install '\.\[{name}\]' in a checkout"
    )
    with pytest.raises(MissingDependency, match=message):
        build_executor(settings.run)
