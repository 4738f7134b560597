import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster_aws.s3 import S3ComputeLogManager

from interleaved_assets_tests.deploy.toy import toy_job
from interleaved_assets_tests.s3 import S3Server


@pytest.fixture
def home(
    deploy_folder: Path, s3_environment: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """A DAGSTER_HOME with the file of deploy/s3-logs, and the bucket its environment names."""
    shutil.copy(deploy_folder / "s3-logs/dagster.yaml", tmp_path)
    bucket = s3_environment.new_bucket()
    monkeypatch.setenv("DAGSTER_LOGS_BUCKET", bucket)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_LOGS_STAGING", str(tmp_path / "staging"))
    (tmp_path / "interleaved.toml").touch()
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(tmp_path / "interleaved.toml"))
    return tmp_path, bucket


def test_what_a_step_prints_lands_in_the_bucket_and_is_read_from_there(
    home: tuple[Path, str], s3_environment: S3Server
) -> None:
    folder, bucket = home
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        assert isinstance(instance.compute_log_manager, S3ComputeLogManager)
        result = toy_job().execute_in_process(instance=instance)
        assert result.success
    names = s3_environment.fs.find(f"{bucket}/dagster-logs/storage/{result.run_id}")
    printed = b"".join(s3_environment.fs.cat_file(name) for name in names if name.endswith(".out"))
    assert b"this is on_gpu\n" in printed

    with dg.DagsterInstance.from_config(str(folder)) as elsewhere:
        events = elsewhere.all_logs(result.run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)
        manager = elsewhere.compute_log_manager
        key = manager.build_log_key_for_run(result.run_id, events[0].dagster_event.logs_captured_data.file_key)
        shutil.rmtree(folder / "staging")
        data = manager.get_log_data(key)
        assert b"this is on_gpu\n" in data.stdout
        assert manager.display_path_for_type(key, ComputeIOType.STDOUT).startswith(f"s3://{bucket}/dagster-logs/")


def test_a_missing_bucket_name_is_named(home: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_LOGS_BUCKET")
    instance = dg.DagsterInstance.from_config(str(home[0]))
    with pytest.raises(dg.DagsterInvalidConfigError, match="DAGSTER_LOGS_BUCKET"):
        _ = instance.compute_log_manager
