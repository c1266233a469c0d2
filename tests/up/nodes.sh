#!/bin/bash
# Nodes are added to a cluster that runs, and removed with their pods, as far as budgets allow. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/kubelet
ip link set lo up
trap 'coracle down --purge > /dev/null || true' EXIT
kubectl=$(scripts/kubectl)
k() { "$kubectl" --kubeconfig /var/lib/coracle/admin.kubeconfig "$@"; }
fails() { if "$@" > /run/said 2>&1; then echo "it did not fail: $*"; exit 1; fi; cat /run/said; }
answers() { for _ in $(seq 200); do curl -sf --max-time 5 "$1" > /run/answer && return; sleep 0.05; done; echo "$1 does not answer"; exit 1; }
# Control groups of a node; other clusters may run beside this one.
groups() {
    local hub
    hub=$(grep -A2 '"hub"' /var/lib/coracle/up.json | grep -o '[0-9]*' | paste -sd-)
    find /sys/fs/cgroup -maxdepth 3 -type d -name "coracle-$hub-$1" 2>/dev/null || true
}
# nodes NAME…: those of the API, of the state, and no others have directories.
nodes() {
    [ "$(k get nodes -o name | sort | paste -sd' ')" = "$(printf 'node/%s\n' "$@" | sort | paste -sd' ')" ]
    [ "$(find /var/lib/coracle -maxdepth 1 -name 'node-*' -printf '%f\n' | sort | paste -sd' ')" = "$*" ]
}

# Without a cluster, and with one that is down.
fails coracle node add | grep -x "Error: no cluster of \`coracle up\` in /var/lib/coracle"
# Whatever the log says, or does not say: readiness is not read from there.
RUST_LOG=off CORACLE_LOG=error coracle up --image .cache/images/nginx.tar --publish 8080:web:80 | grep "1 node(s)"
coracle down > /dev/null
fails coracle node add | grep -x "Error: the cluster in /var/lib/coracle is down: \`coracle up\` starts it"
coracle up > /dev/null

# Two more, with the images of the first.
coracle node add 2 -o json | tee /run/added
python3 -c 'import json; a = json.load(open("/run/added")); assert a["added"] == ["node-2", "node-3"] and len(a["nodes"]) == 3, a'
nodes node-1 node-2 node-3
# One on each node.
k create -f - <<'EOF'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: nginx, image: nginx, imagePullPolicy: IfNotPresent}]
EOF
k expose deployment web --port=80
k rollout status deployment web --timeout=120s
answers http://127.0.0.1:8080/
# The first one has the role of the control plane, and takes pods like the others.
roles() { k get nodes --no-headers | awk '{print $1, $3}' | sort | paste -sd' '; }
[ "$(roles)" = "node-1 control-plane node-2 <none> node-3 <none>" ] || { roles; exit 1; }
[ -z "$(k get nodes -o 'jsonpath={.items[*].spec.taints}')" ]

# What makes no sense changes nothing.
fails coracle node rm node-9 | grep -x "Error: there is no node node-9 in the cluster of /var/lib/coracle; it has node-1, node-2, node-3"
fails coracle node rm node-1 node-2 node-3 | grep "a cluster has at least one node"
fails coracle node add --image /none.tar | grep "/none.tar: there is no such file"
cp "$BIN/coracle" /run/coracle
PATH=/run:$PATH fails setpriv --reuid 65534 --regid 65534 --clear-groups -- /run/coracle node rm node-2 | grep "needs root"
# A pod that nothing creates again, and a budget that allows nothing: the node stays, and is as it was.
k run lonely --image=nginx --image-pull-policy=IfNotPresent --overrides='{"spec":{"nodeName":"node-2"}}'
fails coracle node rm node-2 | grep "nothing would create these pods again: default/lonely; --force"
k create poddisruptionbudget web --selector=app=web --min-available=3
fails coracle node rm --force --timeout 3 node-1 | grep "not drained in time: default/web-.*disruption budget"
nodes node-1 node-2 node-3
[ -z "$(k get nodes -o 'jsonpath={.items[*].spec.unschedulable}')" ]
k delete poddisruptionbudget web

# The first one goes, which forwards the published port: another one does.
k create poddisruptionbudget web --selector=app=web --min-available=2
coracle node rm node-1 -o json | tee /run/removed
python3 -c 'import json; r = json.load(open("/run/removed")); assert r["removed"] == ["node-1"] and r["nodes"] == ["node-2", "node-3"], r'
nodes node-2 node-3
[ -z "$(groups node-1)" ]
answers http://127.0.0.1:8080/
k rollout status deployment web --timeout=120s
# A node with the number that is free, after a restart of all others, too.
coracle down > /dev/null
coracle up | grep "2 node(s)"
coracle node add | grep -x "added: node-1; the cluster has 3 nodes"
nodes node-1 node-2 node-3
[ "$(roles)" = "node-1 control-plane node-2 <none> node-3 <none>" ] || { roles; exit 1; }
# One whose agent is dead does not hold up its removal.
agent=$(python3 -c 'import json; print(next(n["agent"]["pid"] for n in json.load(open("/var/lib/coracle/up.json"))["nodes"] if n["name"] == "node-2"))')
kill -9 "$agent"
coracle node rm --force node-2 | grep "removed: node-2"
nodes node-1 node-3
coracle down --purge > /dev/null
[ ! -e /var/lib/coracle ]
echo "come and gone"
