"""The Helm values, without Helm: their keys against those the chart knows, and what Dagster makes of what they say."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from interleaved_assets.defs.executors import IMAGE_VARIABLE, gpu_tags
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.deploy.kubernetes_api import KUBECONFIG

Values = dict[str, Any]

# Keys that the chart's schema knows, where it refuses others or a misspelt one would do nothing.
_POD = {"podSecurityContext", "securityContext", "resources", "nodeSelector", "tolerations", "affinity", "labels"}
_ENVIRONMENT = {"env", "envConfigMaps", "envSecrets"}
_KNOWN = {
    "": {
        "global",
        "generatePostgresqlPasswordSecret",
        "postgresql",
        "dagsterWebserver",
        "dagsterDaemon",
        "dagster-user-deployments",
        "runLauncher",
        "computeLogManager",
        "scheduler",
        "retention",
        "telemetry",
        "additionalInstanceConfig",
    },
    "postgresql": {
        "enabled",
        "postgresqlHost",
        "postgresqlUsername",
        "postgresqlDatabase",
        "postgresqlScheme",
        "postgresqlParams",
        "service",
    },
    "dagsterWebserver": {"image", "service", "enableReadOnly", "replicaCount", *_ENVIRONMENT, *_POD},
    "dagsterDaemon": {"image", "runCoordinator", "runMonitoring", "runRetries", *_ENVIRONMENT, *_POD},
    "dagsterDaemon.runMonitoring": {
        "enabled",
        "startTimeoutSeconds",
        "cancelTimeoutSeconds",
        "maxResumeRunAttempts",
        "pollIntervalSeconds",
        "freeSlotsAfterRunEndSeconds",
    },
    "dagster-user-deployments": {"enabled", "enableSubchart", "deployments"},
    "runLauncher": {"type", "config"},
    "runLauncher.config.k8sRunLauncher": {"imagePullPolicy", "jobNamespace", "envSecrets", "runK8sConfig", "labels"},
    "runLauncher.config.k8sRunLauncher.runK8sConfig": {
        "containerConfig",
        "podSpecConfig",
        "podTemplateSpecMetadata",
        "jobSpecConfig",
        "jobMetadata",
    },
    "computeLogManager": {"type", "config"},
    "computeLogManager.config.s3ComputeLogManager": {
        "bucket",
        "prefix",
        "localDir",
        "uploadInterval",
        "skipEmptyFiles",
        "endpointUrl",
        "region",
    },
    "scheduler": {"type", "config"},
    "scheduler.config.daemonScheduler": {"maxCatchupRuns", "maxTickRetries"},
    "retention": {"enabled", "schedule", "sensor", "autoMaterialize"},
}
_DEPLOYMENT_KEYS = {"name", "image", "dagsterApiGrpcArgs", "port", *_ENVIRONMENT, *_POD}


@pytest.fixture(scope="module")
def values(deploy_folder: Path) -> Values:
    return yaml.safe_load((deploy_folder / "kubernetes/values.yaml").read_text(encoding="utf-8"))


def snake(value: Any) -> Any:
    """As the chart renders camelCase keys."""
    if not isinstance(value, dict):
        return value
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower(): snake(inner) for key, inner in value.items()}


def launcher_config(values: Values) -> Values:
    """The run launcher's section of dagster.yaml, as the chart renders it."""
    ours = values["runLauncher"]["config"]["k8sRunLauncher"]
    return {
        "load_incluster_config": True,
        "job_namespace": "dagster",
        "image_pull_policy": ours["imagePullPolicy"],
        "service_account_name": "dagster",
        "dagster_home": "/opt/dagster/dagster_home",
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": values["global"]["postgresqlSecretName"],
        # the chart renames its own keys, and hands on what stands below them
        "run_k8s_config": {next(iter(snake({key: 0}))): inner for key, inner in ours["runK8sConfig"].items()},
    }


def step_job(values: Values, tags: dict[str, str]) -> Any:
    """The job that a step with these tags becomes, from the values of run launcher and code location."""
    # imported here: every process of the tests would load the client of Kubernetes for these few
    from dagster_k8s.container_context import K8sContainerContext
    from dagster_k8s.job import DagsterK8sJobConfig, construct_dagster_k8s_job, get_user_defined_k8s_config

    deployment = values["dagster-user-deployments"]["deployments"][0]
    launched = K8sContainerContext.create_from_config(
        {"k8s": {"run_k8s_config": launcher_config(values)["run_k8s_config"]}}
    )
    located = K8sContainerContext.create_from_config(
        {
            "k8s": {
                "image_pull_policy": deployment["image"]["pullPolicy"],
                "env": deployment["env"],
                "env_secrets": [secret["name"] for secret in deployment["envSecrets"]],
                "resources": deployment["resources"],
                "namespace": "dagster",
                "service_account_name": "dagster-user-deployments",
            }
        }
    )
    step = K8sContainerContext(run_k8s_config=get_user_defined_k8s_config(tags))
    config = launched.merge(located).merge(step).run_k8s_config
    return construct_dagster_k8s_job(
        DagsterK8sJobConfig(
            job_image="{repository}:{tag}".format(**deployment["image"]),
            postgres_password_secret=values["global"]["postgresqlSecretName"],
        ),
        args=["dagster", "api", "execute_step"],
        job_name="dagster-step-test",
        user_defined_k8s_config=config,
    )


def tags_of_gpu_step(monkeypatch: pytest.MonkeyPatch, values: Values) -> dict[str, str]:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    for variable in deployment["env"]:
        if variable["name"] == IMAGE_VARIABLE:
            monkeypatch.setenv(variable["name"], variable["value"])

    @dg.asset(op_tags=gpu_tags("auto"))
    def scores() -> None: ...

    return dict(dg.Definitions(assets=[scores]).resolve_implicit_global_asset_job_def().nodes[0].definition.tags)


def test_every_key_is_one_that_the_chart_knows(values: Values) -> None:
    for path, known in _KNOWN.items():
        section: Any = values
        for part in filter(None, path.split(".")):
            section = section[part]
        assert set(section) <= known, path
    for deployment in values["dagster-user-deployments"]["deployments"]:
        assert set(deployment) <= _DEPLOYMENT_KEYS


def test_dagster_takes_the_instance_that_the_values_describe(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = values["computeLogManager"]["config"]["s3ComputeLogManager"]
    monitoring = values["dagsterDaemon"]["runMonitoring"]
    # outside of a cluster there is no configuration of one to load
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=1), encoding="utf-8")
    cluster = {"load_incluster_config": False, "kubeconfig_file": str(kubeconfig)}
    rendered = {
        "run_launcher": {
            "module": "dagster_k8s",
            "class": values["runLauncher"]["type"],
            "config": launcher_config(values) | cluster,
        },
        "compute_logs": {
            "module": "dagster_aws.s3.compute_log_manager",
            "class": values["computeLogManager"]["type"],
            "config": snake(logs),
        },
        "scheduler": {
            "module": "dagster._core.scheduler",
            "class": values["scheduler"]["type"],
            "config": snake(values["scheduler"]["config"]["daemonScheduler"]),
        },
        "run_monitoring": snake(monitoring),
        "retention": snake({key: value for key, value in values["retention"].items() if key != "enabled"}),
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(rendered), encoding="utf-8")
    for variable in values["dagsterWebserver"]["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.run_launcher).__name__ == "K8sRunLauncher"
        assert instance.compute_log_manager._s3_bucket == "curation-logs"  # there is no public name
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 8
        assert instance.get_concurrency_config().run_queue_config.max_user_code_failure_retries == 30
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
        assert not instance.telemetry_enabled
        assert instance.scheduler.max_tick_retries == 30


def test_an_ordinary_step_has_the_image_environment_and_limits_of_the_code_location(values: Values) -> None:
    spec = step_job(values, {}).spec.template.spec
    (container,) = spec.containers
    assert container.image == "registry.example/interleaved-assets:0.1.0-cpu"
    assert "nvidia.com/gpu" not in container.resources.limits
    assert {entry.name: entry.value for entry in container.env}["INTERLEAVED_RUN__EXECUTOR"] == "k8s"
    assert [source.secret_ref.name for source in container.env_from] == ["interleaved-assets-s3"]
    assert spec.node_selector is None


def test_the_gpu_step_has_its_image_a_device_and_a_node_that_has_one(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = step_job(values, tags_of_gpu_step(monkeypatch, values)).spec.template.spec
    (container,) = spec.containers
    assert container.image == "registry.example/interleaved-assets:0.1.0-gpu"
    assert container.resources.limits == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    assert spec.node_selector == {"nvidia.com/gpu.present": "true"}
    assert [toleration.key for toleration in spec.tolerations] == ["nvidia.com/gpu"]
    assert [source.secret_ref.name for source in container.env_from] == ["interleaved-assets-s3"]


def test_nothing_runs_as_root(values: Values) -> None:
    spec = step_job(values, {}).spec.template.spec
    assert (spec.security_context.run_as_non_root, spec.security_context.run_as_user) == (True, 10001)
    assert spec.containers[0].security_context.allow_privilege_escalation is False
    for part in (
        values["dagsterWebserver"],
        values["dagsterDaemon"],
        *values["dagster-user-deployments"]["deployments"],
    ):
        assert part["podSecurityContext"]["runAsNonRoot"] is True
        assert part["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_settings_are_ones_that_there_are(values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interleaved.toml").touch()
    for variable in values["dagster-user-deployments"]["deployments"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = load_settings(tmp_path / "interleaved.toml")
    assert settings.run.executor == "k8s"
    assert settings.storage.output_root == "s3://curation/out"


def test_secrets_are_referenced_by_name_only(values: Values) -> None:
    def variables(value: Any) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            own = [value] if set(value) == {"name", "value"} else []
            return own + [found for inner in value.values() for found in variables(inner)]
        return [found for inner in value for found in variables(inner)] if isinstance(value, list) else []

    assert not [entry for entry in variables(values) if re.search("KEY|SECRET|PASSWORD|TOKEN", entry["name"])]
    assert values["generatePostgresqlPasswordSecret"] is False
    assert "postgresqlPassword" not in values["postgresql"]
