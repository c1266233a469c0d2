#!/bin/bash
# Two clusters at once, with published ports, images, kubeconfigs and logs of their own; one goes, the other stays. Runs in a sandbox of
# tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG
# /usr/local may be a part of it, but nothing of /var/lib is needed.
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/kubelet
ip link set lo up
end() { coracle down --purge --name a > /dev/null || true; coracle down --purge --name b > /dev/null || true; }
trap end EXIT
kubectl=$(scripts/kubectl)
fails() { if "$@" > /run/said 2>&1; then echo "it did not fail: $*"; exit 1; fi; cat /run/said; }
# What does not listen yet is asked again.
answers() { for _ in $(seq 200); do curl -sf --max-time 5 "$1" && return; sleep 0.05; done; echo "$1 does not answer"; coracle logs publish --name a; exit 1; }

coracle up --name a --nodes 2 --publish 8080:web:80 > /run/a.up
grep -qx "http://127.0.0.1:8080 leads to default/web:80" /run/a.up
coracle up --name b -o json > /run/b.up
python3 -c 'import json; up = json.load(open("/run/b.up")); assert up["nodes"] == ["node-1"] and up["dataDir"].endswith("/b"), up'
a=/var/lib/coracle-clusters/a/admin.kubeconfig

# An image by its archive, into all nodes; then pods on both, and the Service on this machine's loopback, of both families.
coracle image load --name a .cache/images/nginx.tar | tee /run/loaded
grep -q "nginx.* is on node-1, node-2" /run/loaded
for node in node-1 node-2; do coracle-agent image --image-dir /var/lib/coracle-clusters/a/$node/engine/images ls | grep -q nginx; done
fails coracle image load --name a ./none.tar | grep -q "none.tar: there is no such file"
fails coracle image load --name none nginx | grep -q "no node on this machine"
"$kubectl" --kubeconfig $a create deployment web --image=nginx --replicas=2
"$kubectl" --kubeconfig $a expose deployment web --port=80 --type=NodePort
"$kubectl" --kubeconfig $a rollout status deployment web --timeout=120s
answers http://127.0.0.1:8080/ | grep -qi nginx
[ ! -e /proc/net/if_inet6 ] || answers 'http://[::1]:8080/' | grep -qi nginx
# The demo finds both, and ends with where the time went.
CORACLE_BIN=$BIN CORACLE_NAME=a CORACLE_DATA_DIR=/mnt/none scripts/demo > /run/demo
grep -qx '2 of 2 pods of deployment.apps/web are ready' /run/demo
if grep -q ' created$' /run/demo; then echo "what was there is created again"; cat /run/demo; exit 1; fi
grep -qx 'open in a browser on this machine: http://127.0.0.1:8080/' /run/demo
sed -n '/^\$ coracle trace deployment\/web --short$/,$p' /run/demo > /run/timeline
for part in '2 pods ready' '% explained' '^total '; do
    grep -q "$part" /run/timeline || { echo "the demo does not end with its timeline: $part"; cat /run/demo; exit 1; }
done
if grep -q 'open in a browser' /run/timeline; then echo "something follows the timeline"; cat /run/demo; exit 1; fi
port=$("$kubectl" --kubeconfig $a get service web -o 'jsonpath={.spec.ports[0].nodePort}')
coracle up --name a --publish "$port" > /dev/null
answers "http://127.0.0.1:$port/" | grep -qi nginx
# A forwarder that is killed comes back, and the port was never closed.
forwarder=$(pgrep -f "coracle forward --to default/web:80" | tail -1)
kill -9 "$forwarder"
answers http://127.0.0.1:8080/ > /dev/null

# A port that is taken is named, and nothing has changed.
fails coracle up --name b --publish 8080:web:80 | grep -q "port 8080 is in use already"
[ "$(grep -c 8080 /var/lib/coracle-clusters/b/up.json)" = 0 ]
# A demo without its image has changed nothing; archives that do not have it are named.
cp /var/lib/coracle-clusters/b/up.json /run/b.json
fails coracle up --name b --demo | grep -q "the image docker.io/library/nginx:latest is not there: .*--image ARCHIVE"
cmp /run/b.json /var/lib/coracle-clusters/b/up.json
fails coracle up --name b --demo --image .cache/images/busybox.tar | grep -q "node-1 has no image .* after loading .*busybox.tar"

# Both in the user's kubeconfig, beside what was there.
mkdir -p /run/.kube
printf 'apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts:\n- name: work\n  context: {cluster: w, user: me}\ncurrent-context: work\n' > /run/.kube/config
chmod 600 /run/.kube/config
coracle kubeconfig --name a --merge > /dev/null
coracle kubeconfig --name b --merge --keep-current > /dev/null
[ "$("$kubectl" config get-contexts -o name | sort | paste -sd' ')" = "coracle-a coracle-b work" ]
[ "$("$kubectl" config current-context)" = coracle-a ]
"$kubectl" get nodes -o name | grep -qx node/node-2
[ "$("$kubectl" --context coracle-b get nodes -o name)" = node/node-1 ]
[ "$(stat -c %a /run/.kube/config /run/.kube/config.coracle-backup | paste -sd' ')" = "600 600" ]
# A user with few rights.
coracle kubeconfig --name a --user jane --group readers > /run/jane
"$kubectl" --kubeconfig $a create clusterrolebinding readers --clusterrole=view --group=readers
[ "$("$kubectl" --kubeconfig /run/jane auth whoami -o 'jsonpath={.status.userInfo.username}')" = jane ]
[ "$("$kubectl" --kubeconfig /run/jane auth can-i delete pods || true)" = no ]
# Through sudo it is the file of the user, who owns it.
echo 'newcomer:x:4242:4242::/run/newcomer:/bin/sh' > /run/passwd
cat /etc/passwd >> /run/passwd
mount --bind /run/passwd /etc/passwd
mkdir -m 755 /run/newcomer && chown 4242:4242 /run/newcomer
SUDO_UID=4242 SUDO_GID=4242 coracle kubeconfig --name a --merge > /dev/null
[ "$(stat -c '%u %g %a' /run/newcomer/.kube/config)" = "4242 4242 600" ]
SUDO_UID=4242 SUDO_GID=4242 coracle up --name a | tail -1 | grep -qx "export KUBECONFIG=/run/newcomer/.kube/coracle-a.kubeconfig"
[ "$(stat -c '%u %a' /run/newcomer/.kube/coracle-a.kubeconfig)" = "4242 600" ]

# kubectl of PATH for one of them; its exit code is passed on, and a user has the copy that `up` wrote.
fails coracle kubectl --name none get nodes | grep -qx "Error: there is no cluster in /var/lib/coracle-clusters/none: admin.kubeconfig is missing"
cp "$BIN/coracle" /run/coracle # who is not root may not get to the tree
fails env PATH=/nowhere /run/coracle kubectl --name a get nodes | grep -q "^Error: kubectl is neither in PATH nor beside"
install -m 755 "$kubectl" /run/kubectl
newcomer() { HOME=/run/newcomer PATH=/run:$PATH setpriv --reuid 4242 --regid 4242 --clear-groups -- "$@"; }
[ "$(newcomer coracle kubectl --name a get nodes -o name | paste -sd' ')" = "node/node-1 node/node-2" ]
fails newcomer coracle kubectl --name b get nodes | grep -q "/var/lib/coracle-clusters/b/admin.kubeconfig is for root alone"
code=0
/run/coracle kubectl --name a get pod none > /run/said 2>&1 || code=$?
[ "$code" = 1 ]
grep -q "pods \"none\" not found" /run/said
rm /run/coracle /run/kubectl

# Logs, and levels of logs.
coracle logs --name a | grep -q serving
coracle logs agent --name a --node node-2 --tail 1 | grep -c . | grep -qx 1
coracle logs keeper --name a > /dev/null
fails coracle logs agent --name a --node node-9 | grep -q "there is no node node-9: the nodes are node-1, node-2"

# One goes with its ports; the other stays.
coracle down --purge --name a | grep -qx "cluster down, state removed"
[ ! -e /var/lib/coracle-clusters/a ]
fails curl -s --max-time 5 http://127.0.0.1:8080/
[ "$("$kubectl" --context coracle-b get nodes -o name)" = node/node-1 ]
coracle kubeconfig --name a --remove | grep -q "the context coracle-a is no longer in"
[ "$("$kubectl" config get-contexts -o name | sort | paste -sd' ')" = "coracle-b work" ]
# Quiet logs do not make it fail: readiness is no line of a log.
coracle down --name b > /dev/null
CORACLE_LOG=error coracle up --name b | grep -q "1 node(s)"
coracle down --purge --name b > /dev/null
[ ! -e /var/lib/coracle-clusters ]
echo "side by side"
