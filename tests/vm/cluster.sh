# shellcheck shell=bash
# Sourced by the suites of scripts/vm: a server and an agent on this machine, and a way to say what holds.
# `check NAME COMMAND…` prints `ok - NAME` or `not ok - NAME`; `result` ends the suite.

export KUBECONFIG=/var/lib/coracle/admin.kubeconfig
failures=0
say() { printf '%6.1f %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }
check() {
    local name=$1
    shift
    if "$@"; then say "ok - $name" | sed 's/^ *[0-9.]* //'; else failures=$((failures + 1)); echo "not ok - $name"; fi
}
result() {
    if [ "$failures" != 0 ]; then
        # Started by the suite, or as units.
        if [ -e /var/log/agent.log ]; then
            echo "--- the end of the agent's log"; tail -25 /var/log/agent.log
            echo "--- the end of the server's log"; tail -8 /var/log/server.log
        else
            echo "--- the end of the agent's log"; journalctl -q -o cat -u coracle-agent -n 40 --no-pager
            echo "--- the end of the server's log"; journalctl -q -o cat -u coracle-server -n 15 --no-pager
        fi
        echo "--- how containers ended"
        kubectl get pods -A -o 'jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].lastState}{"\n"}{end}'
        tail -qn 5 /var/log/pods/*/*/*.log
        kubectl get pods -A -o wide; kubectl get events --sort-by=.lastTimestamp | tail -20
    fi
    exit "$((failures > 0))"
}

# until SECONDS COMMAND…: waits for it to succeed.
until_true() {
    local end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || { echo "(waited in vain for: $*)"; return 1; }
        sleep 0.5
    done
}

# An address that nodes and pods can have without any other machine.
uplink() {
    ip link set lo up
    ip link add uplink type veth peer name outside
    ip addr add 10.0.0.1/24 dev uplink
    ip link set uplink up
    ip link set outside up
    ip route add default dev uplink
}

# deployment NAME IMAGE REPLICAS: of an image that is on the node. Without the schema, which takes long to make and fetch here.
deployment() {
    kubectl create deployment "$1" --image="$2" --replicas="$3" --dry-run=client -o json \
        | jq '.spec.template.spec.containers[0].imagePullPolicy = "IfNotPresent"' | kubectl create --validate=false -f -
}

start_server() {
    coracle server --data-dir /var/lib/coracle "$@" >> /var/log/server.log 2>&1 &
    until_true 600 kubectl get --raw /readyz || { cat /var/log/server.log; exit 1; }
    say "server is ready"
}

# The images that scripts/vm unpacked.
load_images() { mkdir -p /var/lib/coracle/engine; mv /payload/images /var/lib/coracle/engine/; }

# start_agent FLAG…: an agent with the administrator's rights.
start_agent() {
    mkdir -p /opt/cni/bin
    for plugin in bandwidth bridge host-local loopback portmap; do ln -sf "/payload/bin/$plugin" /opt/cni/bin/; done
    coracle-agent run --kubeconfig "$KUBECONFIG" --node-name "$MACHINE" "$@" >> /var/log/agent.log 2>&1 &
    until_true 600 ready "$MACHINE" || { tail -30 /var/log/agent.log; exit 1; }
    say "node $MACHINE is ready"
}

ready() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
field() { kubectl get "$1" -o "jsonpath=$2"; }
is() { [ "$(field "$1" "$2")" = "$3" ] || { echo "($1 $2 is $(field "$1" "$2"), not $3)"; return 1; }; }
holds() { [ "$(field "$1" "$2" 2>/dev/null)" = "$3" ]; }
uid() { field "pod/$1" '{.metadata.uid}'; }

# pod NAME REQUESTS LIMITS COMMAND: of busybox; the amounts are JSON members. A machine that is starved of time is asked again.
pod() { until_true 120 create_pod "$@"; }
create_pod() {
    kubectl create --validate=false -f - <<POD || kubectl get pod "$1"
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1"}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
 "containers": [{"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", $(jq -Rn --arg x "$4" '$x')],
   "resources": {"requests": {$2}, "limits": {$3}}}]}}
POD
}
running() { until_true 400 holds "pod/$1" '{.status.phase}' Running; }
