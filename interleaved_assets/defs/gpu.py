"""What the GPU step needs, said once; each way of running reads its own part and overlooks the others.

* Every executor holds one slot of the pool ``gpu`` while the step runs. The limit is one slot per device and is set at
  deployment (``dagster instance concurrency set gpu 1``).
* Ray reads ``dagster-ray/config``: a logical GPU, and with it ``CUDA_VISIBLE_DEVICES``.
* Kubernetes reads ``dagster-k8s/config``: the device plugin's resource, a node that has a device, leave to be there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

POOL: Final = "gpu"
IMAGE_VARIABLE: Final = "GPU_STEP_IMAGE"
"""Environment variable with the GPU step's container image on Kubernetes; without it, the step has the run's image."""

_GPUS: Final = 1  # one model on one device; more devices mean more runs at a time
_RESOURCE: Final = "nvidia.com/gpu"  # as the NVIDIA device plugin names it, and the taint that GPU nodes usually carry
_NODE_LABEL: Final = "nvidia.com/gpu.present"  # set by NVIDIA's GPU feature discovery, or by hand


@dataclass(frozen=True)
class StepNeeds:
    """Arguments of an asset: ``dg.asset(pool=needs.pool, op_tags=needs.op_tags)``."""

    pool: str
    op_tags: Mapping[str, Any]


def gpu_step(device: Literal["auto", "cpu", "cuda"]) -> StepNeeds:
    """What the step that runs the model asks of whoever starts it.

    Args:
        device: the setting ``clip.device``. ``auto`` and ``cuda`` ask a cluster for a device; ``auto`` still runs where
            there is none, on one machine. ``cpu`` asks for no device, but keeps to the pool: two models at once on one
            machine's cores only slow each other.
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
