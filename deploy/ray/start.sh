#!/bin/sh
# Start a Ray head, or a worker that joins one, in the foreground. docs/deploy/ray.md has the steps.
#
#   deploy/ray/start.sh head --num-cpus=2 --num-gpus=1
#   deploy/ray/start.sh worker 10.0.0.5:6379 --num-gpus=1
#
# Further arguments are passed to `ray start`. Tasks have the environment of this process: credentials for the bucket
# (AWS_…), and the virtual environment's bin folder in PATH.
#
#   RAY_AUTH_TOKEN   secret of the cluster, 32 characters or more, the same in every process of the cluster
#   RAY_NODE_IP      address of this node for the others; 127.0.0.1 unless set
#   RAY_JOB_PORT     port of the job server and dashboard, 8265 unless set; always on 127.0.0.1; ssh -L reaches it
set -eu

if [ "${#RAY_AUTH_TOKEN}" -lt 32 ]; then
    echo "RAY_AUTH_TOKEN needs 32 characters or more: export RAY_AUTH_TOKEN=\$(openssl rand -hex 32)" >&2
    exit 2
fi
# The settings of a run are sent with its tasks; a variable of this node would look as if it had an effect.
if env | grep -q '^INTERLEAVED_.*__'; then
    echo "set no INTERLEAVED_<SECTION>__<KEY> on a Ray node: the settings are sent with the run" >&2
    exit 2
fi
export RAY_AUTH_MODE=token
export RAY_USAGE_STATS_ENABLED=0

role="${1:?head or worker}"
shift
case "$role" in
head)
    exec ray start --head --block \
        --node-ip-address="${RAY_NODE_IP:-127.0.0.1}" \
        --dashboard-host=127.0.0.1 --dashboard-port="${RAY_JOB_PORT:-8265}" "$@"
    ;;
worker)
    head="${1:?address of the head, host:port}"
    shift
    exec ray start --block --address="$head" --node-ip-address="${RAY_NODE_IP:-127.0.0.1}" "$@"
    ;;
*)
    echo "head or worker, not $role" >&2
    exit 2
    ;;
esac
