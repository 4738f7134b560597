"""Where the steps of a run work: in the run's process, in processes beside it, on a Ray cluster, or as Kubernetes jobs.

One setting, ``run.executor``, decides. Packages of the clusters are optional and load only when they are chosen.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

import dagster as dg

from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.settings import ENV_PREFIX, Settings

if TYPE_CHECKING:
    from types import ModuleType

# Without a CPU of its own Ray puts a step on the head node; the step's threads are run.parallel_shards either way.
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
            # one warm process forks the others, which halves what a step costs
            return dg.multiprocess_executor.configured({"start_method": {"forkserver": {}}})
        case "ray":
            return _ray(settings)
        case "k8s":
            executor: dg.ExecutorDefinition = _optional("dagster_k8s", "k8s").k8s_job_executor
            return executor


def settings_variables(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, one per section, for a process that cannot see the file they came from.

    They hold no secrets: those are in the environment of each process, and no setting names one.
    """
    return {
        f"{ENV_PREFIX}{section.upper()}": getattr(settings, section).model_dump_json()
        for section in type(settings).model_fields
    }


def _ray(settings: Settings) -> dg.ExecutorDefinition:
    executor: dg.ExecutorDefinition = _optional("dagster_ray", "ray").ray_executor
    # A step loads the definitions anew on its worker. With other settings than the run's it would record other code
    # versions, so the run's settings travel with it. Credentials do not: Ray shows these variables in its dashboard.
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
