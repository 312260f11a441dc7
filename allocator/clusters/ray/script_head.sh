#!/bin/bash
@ABOUT@
# Read it, then: bash ray.sh on a machine that has the command `ray`, of the version of the cluster.
set -u
export RAY_API_SERVER_ADDRESS=${RAY_API_SERVER_ADDRESS:-@ADDRESS@} RAY_USAGE_STATS_ENABLED=0
faults=0

expect() {
    ray job status "$1" 2>&1 | grep -qF "'$1': RUNNING" || {
        echo "ray.sh: job $1 does not run any more" >&2
        faults=1
    }
}

stop() {
    # it waits for the end; Ray kills the job after RAY_JOB_STOP_WAIT_TIME_S, by default 3 s
    timeout "${ALLOCATOR_WAIT_S:-180}" ray job stop "$1" >&2 || {
        echo "ray.sh: job $1 does not end" >&2
        exit 1
    }
}

submit() {
    local id=$1
    shift
    ray job submit --no-wait --submission-id "$id" "$@" >&2 || { echo "ray.sh: job $id was refused" >&2; faults=1; }
}

request() {
    RAY_ADDRESS=${RAY_ADDRESS:-auto} python3 -c 'import json, sys, ray; from ray.autoscaler.sdk import request_resources
ray.init(logging_level="ERROR"); request_resources(bundles=json.loads(sys.argv[1]))' "$1" || faults=1
}

