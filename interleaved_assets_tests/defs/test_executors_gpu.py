import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from interleaved_assets.defs.assets import build_assets
from interleaved_assets.defs.executors import GPU, gpu_tags
from interleaved_assets.pipeline.run.many import needs_gpu
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.defs.runs import NO_TELEMETRY
from interleaved_assets_tests.deploy.kubernetes_api import KubernetesApi, kubernetes_api
from interleaved_assets_tests.deploy.toy import said, toy_job
from interleaved_assets_tests.documents import project


def step_tags(device: str) -> dict[str, str]:
    """The tags that an executor sees on the step of an asset for this device."""

    @dg.asset(pool=GPU, op_tags=gpu_tags(device))
    def scores() -> None: ...

    return dict(dg.Definitions(assets=[scores]).resolve_implicit_global_asset_job_def().nodes[0].definition.tags)


def pod_spec(tags: dict[str, str], base: dict[str, Any] | None = None) -> Any:
    """What dagster-k8s makes of the tags, on top of the configuration that all pods of the deployment have."""
    # imported here: every process of the tests would load the client of Kubernetes for these few
    from dagster_k8s.container_context import K8sContainerContext
    from dagster_k8s.job import DagsterK8sJobConfig, construct_dagster_k8s_job, get_user_defined_k8s_config

    context = K8sContainerContext.create_from_config({"k8s": {"run_k8s_config": base or {}}})
    context = context.merge(K8sContainerContext(run_k8s_config=get_user_defined_k8s_config(tags)))
    job = construct_dagster_k8s_job(
        DagsterK8sJobConfig(job_image="registry.example/interleaved-assets:cpu"),
        args=["dagster"],
        job_name="dagster-step-test",
        user_defined_k8s_config=context.run_k8s_config,
    )
    return job.spec.template.spec


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_the_pool_is_held_on_any_device(device: str, tmp_path: Path) -> None:
    assets = build_assets(project(tmp_path, f'[clip]\nenabled = true\ndevice = "{device}"\n'))
    (scores,) = [asset for asset in assets if asset.key == dg.AssetKey("clip_scores")]
    assert isinstance(scores, dg.AssetsDefinition)
    assert scores.op.pools == {"gpu"}


def test_a_cpu_setting_asks_a_cluster_for_no_device() -> None:
    assert step_tags("cpu") == {}
    assert not pod_spec(step_tags("cpu")).node_selector


def test_a_ray_task_takes_a_gpu_where_a_model_runs_on_one_and_else_a_cpu(tmp_path: Path) -> None:
    for device, gpu in {"auto": True, "cuda": True, "cpu": False}.items():
        settings = project(tmp_path, f'[clip]\nenabled = true\ndevice = "{device}"\n')
        stages = stage_dag(settings)
        assert needs_gpu(stages["clip_scores"], settings.clip) == gpu
        assert not needs_gpu(stages["image_scores"], settings.clip)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_kubernetes_reads_limit_node_and_toleration(device: str) -> None:
    spec = pod_spec(step_tags(device))
    (container,) = spec.containers
    assert container.resources.limits == {"nvidia.com/gpu": "1"}
    assert spec.node_selector == {"nvidia.com/gpu.present": "true"}
    (toleration,) = spec.tolerations
    assert (toleration.key, toleration.operator, toleration.effect) == ("nvidia.com/gpu", "Exists", "NoSchedule")


def test_settings_of_all_pods_of_the_deployment_stay() -> None:
    base = {
        "container_config": {"resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}}},
        "pod_spec_config": {"node_selector": {"zone": "a"}, "security_context": {"run_as_non_root": True}},
    }
    spec = pod_spec(step_tags("auto"), base)
    (container,) = spec.containers
    assert container.resources.requests == {"memory": "4Gi"}
    assert container.resources.limits == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    assert spec.node_selector == {"zone": "a", "nvidia.com/gpu.present": "true"}
    assert spec.security_context.run_as_non_root


def test_the_image_of_the_gpu_step_is_the_deployments_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pod_spec(step_tags("auto")).containers[0].image == "registry.example/interleaved-assets:cpu"
    monkeypatch.setenv("GPU_STEP_IMAGE", "registry.example/interleaved-assets:gpu")
    assert pod_spec(step_tags("auto")).containers[0].image == "registry.example/interleaved-assets:gpu"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubernetesApi]:
    with kubernetes_api(tmp_path) as api:
        yield api


@pytest.mark.system
def test_the_executor_requests_a_gpu_only_for_that_step(
    cluster: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "interleaved.toml"
    settings.write_text('[run]\nexecutor = "k8s"\n', encoding="utf-8")
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(settings))
    launcher = {
        "module": "dagster_k8s",
        "class": "K8sRunLauncher",
        "config": {
            "service_account_name": "dagster",
            "job_image": "registry.example/interleaved-assets:cpu",
            "instance_config_map": "dagster-instance",
            "dagster_home": str(tmp_path),
            "load_incluster_config": False,
            "kubeconfig_file": str(cluster.kubeconfig),
        },
    }
    (tmp_path / "dagster.yaml").write_text(json.dumps({"run_launcher": launcher, **NO_TELEMETRY}), encoding="utf-8")
    with (
        dg.DagsterInstance.from_config(str(tmp_path)) as instance,
        dg.execute_job(
            dg.reconstructable(toy_job),
            instance=instance,
            asset_selection=[dg.AssetKey("before"), dg.AssetKey("on_gpu")],
            run_config={
                "execution": {"config": {"load_incluster_config": False, "kubeconfig_file": str(cluster.kubeconfig)}}
            },
        ) as result,
    ):
        assert result.success
        assert set(said(instance)) == {"before", "on_gpu"}
    pods = {step: job["spec"]["template"]["spec"] for step, job in cluster.jobs.items()}
    assert pods["before"]["containers"][0]["resources"] == {}
    assert "nodeSelector" not in pods["before"]
    assert "tolerations" not in pods["before"]
    assert pods["on_gpu"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert pods["on_gpu"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pods["on_gpu"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
