"""The executor of the steps: in the process of the run, in processes of their own, as Kubernetes jobs, or on Ray.

The setting ``run.executor`` selects it. The packages for Ray and Kubernetes are optional and load only when selected.
The needs of the GPU step are arguments of its asset; executors read their own parts of them:

* Every executor holds one slot of the pool ``gpu`` while the step runs. There is one slot per device, and also one on
  the CPU, since two models at a time on the cores of one machine slow each other down.
* Ray gives each task one GPU, and with it ``CUDA_VISIBLE_DEVICES``, or one CPU (``pipeline/run/ray.py``).
* Kubernetes reads ``dagster-k8s/config``: the resource of the device plugin, a selector and a toleration for GPU nodes.
* An executor of your own (``run.executor = "module:attribute"``) finds its tag there too: ``dagster-ray/config`` for
  steps on Ray, ``dagster-celery/queue`` for Celery, whose worker with the GPU then listens to the queue ``gpu``.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal

import dagster as dg

from interleaved_assets.model.errors import MissingDependency, SettingsError, how_to_install
from interleaved_assets.settings.sections import RunSettings

GPU: Final = "gpu"
SHARD_IO: Final = "shard_io"
SLOTS: Final = {GPU: 1, SHARD_IO: 2}
"""Steps that may run at a time, by pool: one on a device, else as many as dagster.yaml allows runs."""

IMAGE_VARIABLE: Final = "GPU_STEP_IMAGE"
"""Environment variable with the GPU step's container image on Kubernetes. Without it, the step uses the run's image."""

WORK_OF_STEPS: Final = "interleaved_assets.defs.build"
"""Module that the process imports from which steps are forked: the definitions, with the work of the steps."""
_GPUS: Final = 1  # one model uses one device; with more devices, more runs work at a time
_RESOURCE: Final = "nvidia.com/gpu"  # name in the NVIDIA device plugin, and the usual taint of GPU nodes
_NODE_LABEL: Final = "nvidia.com/gpu.present"  # set by NVIDIA's GPU feature discovery, or by hand


def gpu_tags(device: Literal["auto", "cpu", "cuda"]) -> dict[str, Any]:
    """Return the ``op_tags`` of the step that runs the model, for clusters.

    Args:
        device: the setting ``clip.device``. ``auto`` and ``cuda`` ask a cluster for a device; on one machine ``auto``
            runs without one too. ``cpu`` asks for no device.
    """
    if device == "cpu":
        return {}
    container: dict[str, Any] = {"resources": {"limits": {_RESOURCE: str(_GPUS)}}}
    if image := os.environ.get(IMAGE_VARIABLE):
        container["image"] = image
    pod = {
        "node_selector": {_NODE_LABEL: "true"},
        "tolerations": [{"key": _RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return {
        "dagster-k8s/config": {"container_config": container, "pod_spec_config": pod},
        "dagster-ray/config": {"num_gpus": _GPUS},
        "dagster-celery/queue": GPU,
    }


def build_executor(run: RunSettings) -> dg.ExecutorDefinition:
    """Return the executor that ``run.executor`` names.

    ``in_process`` shares one process among the steps of a run and costs least (``docs/dagster.md``). With ``ray`` the
    steps do the same, and give their shards to the cluster. ``k8s`` takes image, environment and volumes from the run's
    own pod.

    Raises:
        MissingDependency: the package that the choice needs is absent; the message names the extra to install.
        SettingsError: ``module:attribute`` names no executor.
    """
    match run.executor:
        case "in_process":
            return dg.in_process_executor
        case "multiprocess":
            # steps are forked from one process that has imported their work, which halves their cost
            forked = {"preload_modules": [WORK_OF_STEPS]}
            return dg.multiprocess_executor.configured({"start_method": {"forkserver": forked}})
        case "ray":
            _require("ray", extra="ray")  # the first step that needs it imports it
            return dg.in_process_executor
        case "k8s":
            _require("dagster_k8s", extra="k8s")
            from dagster_k8s import k8s_job_executor

            return k8s_job_executor
        case _:
            return _named_executor(run.executor)


def _named_executor(name: str) -> dg.ExecutorDefinition:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise SettingsError(
            f"run.executor: {module} cannot be imported: {error}. Install its package into this environment, or add "
            "the folder it lies in to PYTHONPATH"
        ) from error
    except AttributeError as error:
        raise SettingsError(f"run.executor: {module} has no {attribute}") from error
    if not isinstance(found, dg.ExecutorDefinition):
        raise SettingsError(
            f"run.executor: {name} is no executor of Dagster but {type(found).__name__}: name a dg.ExecutorDefinition, "
            "such as celery_executor.configured({…})"
        )
    return found


def _require(package: str, *, extra: str) -> None:
    if find_spec(package) is None:
        raise MissingDependency(
            f'run.executor = "{extra}" needs the package {package.replace("_", "-")}: '
            f'{how_to_install(extra)}; or set run.executor to "in_process" or "multiprocess"'
        )
