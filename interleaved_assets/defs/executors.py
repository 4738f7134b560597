"""Where steps run: in the process of the run, in processes of their own, on a Ray cluster, or as Kubernetes jobs.

The setting ``run.executor`` decides. The packages for Ray and Kubernetes are optional and load only when chosen. The
needs of the GPU step are arguments of its asset; each executor reads its own part of them:

* Every executor holds one slot of the pool ``gpu`` while the step runs. The limit is one slot per device and is set at
  deployment (``dagster instance concurrency set gpu 1``).
* Ray reads ``dagster-ray/config``: a logical GPU, and with it ``CUDA_VISIBLE_DEVICES``.
* Kubernetes reads ``dagster-k8s/config``: the resource of the device plugin, a selector and a toleration for GPU nodes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import dagster as dg

from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.settings import ENV_PREFIX, Settings

POOL: Final = "gpu"
IMAGE_VARIABLE: Final = "GPU_STEP_IMAGE"
"""Environment variable with the GPU step's container image on Kubernetes; without it, the step has the run's image."""

_GPUS: Final = 1  # one model on one device; with more devices, more runs work at a time
_RESOURCE: Final = "nvidia.com/gpu"  # name in the NVIDIA device plugin, and the usual taint of GPU nodes
_NODE_LABEL: Final = "nvidia.com/gpu.present"  # set by NVIDIA's GPU feature discovery, or by hand


@dataclass(frozen=True)
class StepNeeds:
    """Arguments of an asset: ``dg.asset(pool=needs.pool, op_tags=needs.op_tags)``."""

    pool: str
    op_tags: Mapping[str, Any]


def gpu_step(device: Literal["auto", "cpu", "cuda"]) -> StepNeeds:
    """What the step that runs the model needs.

    Args:
        device: the setting ``clip.device``. ``auto`` and ``cuda`` ask a cluster for a device; ``auto`` still runs where
            there is none, on one machine. ``cpu`` asks for no device but uses the pool: two models at a time on the
            cores of one machine slow each other down.
    """
    if device == "cpu":
        return StepNeeds(POOL, {})
    return StepNeeds(
        POOL,
        {"dagster-ray/config": {"num_gpus": _GPUS}, "dagster-k8s/config": _kubernetes(os.environ.get(IMAGE_VARIABLE))},
    )


def _kubernetes(image: str | None) -> dict[str, Any]:
    container: dict[str, Any] = {"resources": {"limits": {_RESOURCE: str(_GPUS)}}}
    if image:
        container["image"] = image
    return {
        "container_config": container,
        "pod_spec_config": {
            "node_selector": {_NODE_LABEL: "true"},
            "tolerations": [{"key": _RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


# Ray puts a step that asks for no CPU on the head node; the step's threads are run.parallel_shards either way.
_CPUS_PER_RAY_STEP: Final = 1


def build_executor(settings: Settings) -> dg.ExecutorDefinition:
    """The executor that ``run.executor`` names.

    ``in_process`` shares one process among the steps of a run and costs least (``docs/dagster.md``). ``ray`` finds its
    cluster through ``RAY_API_SERVER_ADDRESS`` or ``RAY_ADDRESS``. ``k8s`` takes image, environment and volumes from
    the run's own pod.

    Raises:
        MissingDependency: the package that the choice needs is absent; the message names the extra to install.
    """
    match settings.run.executor:
        case "in_process":
            return dg.in_process_executor
        case "multiprocess":
            # steps are forked from one warm process, which halves their cost
            return dg.multiprocess_executor.configured({"start_method": {"forkserver": {}}})
        case "ray":
            return _ray(settings)
        case "k8s":
            executor: dg.ExecutorDefinition = _optional("dagster_k8s", "k8s").k8s_job_executor
            return executor


def settings_variables(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, one per section, for a process without the settings file.

    They contain no secrets: settings refuse those, and each process reads them from its environment.
    """
    return {
        f"{ENV_PREFIX}{section.upper()}": getattr(settings, section).model_dump_json()
        for section in type(settings).model_fields
    }


def _ray(settings: Settings) -> dg.ExecutorDefinition:
    executor: dg.ExecutorDefinition = _optional("dagster_ray", "ray").ray_executor
    # A step loads the definitions on its worker. With settings other than those of the run it would record other code
    # versions, so the settings are sent along. Credentials are not: Ray shows these variables in its dashboard.
    variables = [f"{name}={value}" for name, value in settings_variables(settings).items()]
    return executor.configured({"ray": {"num_cpus": _CPUS_PER_RAY_STEP, "env_vars": variables}})


def _optional(package: str, extra: str) -> "ModuleType":
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependency(
            f'run.executor = "{extra}" needs the package {package.replace("_", "-")}: '
            f'run "pip install \'interleaved-assets[{extra}]\'", or set run.executor to "in_process" or "multiprocess"'
        ) from error
