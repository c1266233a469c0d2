#!/bin/bash
# A registry of the cluster: what is pushed to the machine's loopback, pods pull under the same name. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG
mount -t tmpfs -o mode=755 tmpfs /run
# The images are made of packages.
mkdir /run/dpkg
mount --bind /var/lib/dpkg /run/dpkg
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/kubelet /var/lib/dpkg
mount --bind /run/dpkg /var/lib/dpkg
ip link set lo up
trap 'coracle down --purge > /dev/null || true' EXIT
kubectl=$(scripts/kubectl)
k() { "$kubectl" --kubeconfig /var/lib/coracle/admin.kubeconfig "$@"; }
fails() { if "$@" > /run/said 2>&1; then echo "it did not fail: $*"; exit 1; fi; cat /run/said; }
# pulled NAME IMAGE: a pod of an image that no node has.
pulled() {
    k run "$1" --image="$2" --image-pull-policy=Always
    k wait --for=condition=Ready "pod/$1" --timeout=120s || { k describe "pod/$1"; exit 1; }
}

# What makes no sense, or cannot be had, is said before anything is started.
for bad in 0 70000 x; do fails coracle up --registry=$bad | grep -- "--registry"; done
python3 -c 'import socket, time; s = socket.socket(); s.bind(("127.0.0.1", 5001)); s.listen(); print("bound", flush=True); time.sleep(600)' > /run/bound &
taken=$!
until [ -s /run/bound ]; do sleep 0.01; done
fails coracle up --registry=5001 | grep "port 5001 is in use already"
kill $taken
fails env PATH="$BIN" coracle up --registry | grep "docker-registry is missing (apt-get install docker-registry)"
[ "$(coracle down)" = "no cluster in /var/lib/coracle" ]

# A cluster that runs gets one: its agent is told, its pods go on.
coracle up --image .cache/images/busybox.tar > /dev/null
k run before --image=busybox --image-pull-policy=IfNotPresent -- sleep 3600
k wait --for=condition=Ready pod/before --timeout=120s
id=$(k get pod before -o 'jsonpath={.status.containerStatuses[0].containerID}')
coracle up --registry=5001 -o json > /run/up
python3 -c 'import json; up = json.load(open("/run/up")); assert up["registry"] == "localhost:5001", up'
scripts/images push localhost:5001 > /run/pushed
pulled first localhost:5001/library/nginx
pulled other 127.0.0.1:5001/library/nginx
[ "$(k get pod before -o 'jsonpath={.status.containerStatuses[0].containerID}')" = "$id" ]
[ "$(k get pod before -o 'jsonpath={.status.containerStatuses[0].restartCount}')" = 0 ]

# A node that is added knows it, and it is as before after `down`.
coracle node add > /dev/null
coracle down > /dev/null
coracle up | grep -x "localhost:5001/NAME is for images"
k delete pod --all --wait=false
pulled second localhost:5001/library/nginx
coracle logs registry > /dev/null
coracle up --registry=off > /run/off
if grep "is for images" /run/off; then exit 1; fi
if curl -s --max-time 5 http://localhost:5001/v2/; then echo "it still answers"; exit 1; fi
coracle down --purge > /dev/null
echo "pushed and pulled"
