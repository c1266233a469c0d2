#!/bin/bash
# Up, pods on two nodes, up again, down --purge; then everything is as it was before. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export CORACLE_DATA_DIR=/mnt/cluster HOME=/run PATH="$BIN:$PATH"
unset CORACLE_NAME
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /mnt
ip link set lo up

# shellcheck source=tests/up/look.sh
. tests/up/look.sh
hub=none
# The commands that look are gone when they are not looked for.
look | grep -v 'bash\|look' > /tmp/before.$$
trap 'rm -f /tmp/before.$$ /tmp/after.$$ /tmp/*.up.$$' EXIT

images=()
for archive in .cache/images/[!t]*.tar; do images+=(--image "$archive"); done
coracle up --nodes 2 "${images[@]}" > /tmp/first.up.$$
tail -1 /tmp/first.up.$$ | grep -qx "export KUBECONFIG=/mnt/cluster/admin.kubeconfig"
export KUBECONFIG=/mnt/cluster/admin.kubeconfig
kubectl=$(scripts/kubectl)
"$kubectl" create deployment web --image=nginx --replicas=4
"$kubectl" expose deployment web --port=80
"$kubectl" rollout status deployment web --timeout=120s
hub=$(grep -A2 '"hub"' /mnt/cluster/up.json | grep -o '[0-9]*' | paste -sd-)
[ -n "$(find /sys/fs/cgroup -maxdepth 3 -type d -name "coracle-$hub-*")" ] || echo "(no control groups are seen from here)"

# Layers are unpacked here: whatever is unpacked changes the time of the directory.
unpacked() { stat -c '%n %y' /mnt/cluster/node-*/engine/images/ingest; }

# A second run starts nothing and unpacks nothing; another one loads an image that is new, and changes nothing else.
cp /mnt/cluster/up.json /run/up.before
pods=$("$kubectl" get pods -o 'jsonpath={.items[*].status.containerStatuses[*].containerID}')
before=$(unpacked)
coracle up --nodes 2 "${images[@]}" > /dev/null
[ "$(unpacked)" = "$before" ]
cmp /mnt/cluster/up.json /run/up.before
coracle up --nodes 2 --image .cache/images/tools.tar > /dev/null
[ "$(unpacked)" != "$before" ]
without_images() { python3 -c 'import json, sys; state = json.load(open(sys.argv[1])); del state["images"]; print(state)' "$1"; }
[ "$(without_images /mnt/cluster/up.json)" = "$(without_images /run/up.before)" ]
rm /run/up.before
[ "$("$kubectl" get pods -o 'jsonpath={.items[*].status.containerStatuses[*].containerID}')" = "$pods" ]
coracle-agent image --image-dir /mnt/cluster/node-2/engine/images ls | grep coracle.local/tools > /dev/null

coracle down --purge
rm -rf /run/.kube
for _ in $(seq 50); do
    look | grep -v 'bash\|look' > /tmp/after.$$
    cmp -s /tmp/before.$$ /tmp/after.$$ && break
    sleep 0.2
done
diff /tmp/before.$$ /tmp/after.$$
echo "nothing is left"
