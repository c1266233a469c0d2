#!/bin/bash
# `coracle reset` ends and removes what a server and a node left on a machine, and nothing else. Runs in a sandbox of tests/up.
set -euo pipefail
export HOME=/run PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /var/log
# Groups of pods are ended by their names, and those of the machine are not of this test.
mount -t tmpfs tmpfs /sys/fs/cgroup
# A node of this machine has its network there.
[ ! -d /etc/cni ] || mount -t tmpfs tmpfs /etc/cni
ip link set lo up
server=
trap '[ -z "$server" ] || kill "$server"' EXIT
fails() { if "$@" > /run/said 2>&1 < /dev/null; then echo "it did not fail: $*"; exit 1; fi; cat /run/said; }

[ "$(coracle reset --yes)" = "there is nothing to reset in /var/lib/coracle" ]
mkdir /var/lib/coracle
touch /var/lib/coracle/letter
fails coracle reset --yes | grep -x "Error: /var/lib/coracle holds no state of a server or a node"
[ -e /var/lib/coracle/letter ]
rm /var/lib/coracle/letter

# A server that somebody runs by hand is not stopped, and keeps its state.
coracle server --api-only --bind 127.0.0.1:7443 > /run/server.log 2>&1 &
server=$!
for _ in $(seq 600); do ! curl -sk --max-time 5 https://127.0.0.1:7443/livez | grep -q ok || break; sleep 0.1; done
fails coracle reset --yes | grep -x "Error: process $server is \`coracle server\`: stop it first"
curl -sk --max-time 5 https://127.0.0.1:7443/livez | grep ok
kill "$server"
wait "$server" || true
server=
# Neither is that of an installed server meant when the environment names another cluster.
fails env CORACLE_NAME=a coracle reset --yes |
    grep -x "Error: CORACLE_NAME names a cluster of \`coracle up\`, which \`coracle down --purge\` removes; unset it to reset /var/lib/coracle"
[ -e /var/lib/coracle/admin.kubeconfig ]

# What a node leaves, beside what is not its own.
mkdir -p /var/lib/coracle/agent/pods/uid-1 /var/log/pods/default_web_uid-1 /var/log/pods/default_web_uid-2 /run/coracle /run/elsewhere
mkdir /var/log/containers
for pod in 1 2; do ln -s /var/log/pods/default_web_uid-$pod/web/0.log /var/log/containers/web-$pod.log; done
touch /run/elsewhere/kept
ln -s /run/elsewhere /var/lib/coracle/agent/link
mount -t tmpfs tmpfs /var/lib/coracle/agent/pods/uid-1
ip link add coracle0 type bridge
fails coracle reset | grep "it takes --yes to end the server and the node of this machine, and remove /var/log/containers/web-1.log, /var/log/pods/default_web_uid-1, /var/lib/coracle$"
[ -e /var/lib/coracle/admin.kubeconfig ]
[ -e /run/coracle ]
coracle reset --yes -o json > /run/answer 2> /run/said || { cat /run/said; exit 1; }
python3 -c 'import json; a = json.load(open("/run/answer")); assert a["removed"] == ["/var/log/containers/web-1.log", "/var/log/pods/default_web_uid-1", "/var/lib/coracle"] and a["stopped"] == [], a'
[ ! -e /var/lib/coracle ]
[ ! -e /run/coracle ]
[ -e /run/elsewhere/kept ]
[ "$(ls /var/log/pods)" = default_web_uid-2 ]
[ "$(ls /var/log/containers)" = web-2.log ]
if ip link show coracle0 > /dev/null 2>&1; then echo "the network of the node is left"; exit 1; fi

# A cluster of `up`, and a link, are left alone.
mkdir /run/cluster
echo '{}' > /run/cluster/up.json
fails coracle reset --yes --data-dir /run/cluster | grep "is a cluster of \`coracle up\`: \`coracle down --purge --data-dir /run/cluster\` removes it"
ln -s /run/elsewhere /run/link
mkdir /run/elsewhere/agent
for link in /run/link /run/link/ /run/link/.; do
    fails coracle reset --yes --data-dir "$link" | grep -x "Error: /run/link is a link, which reset does not follow"
done
[ -e /run/elsewhere/agent ]
[ -e /run/elsewhere/kept ]
[ -e /run/cluster/up.json ]
echo "reset"
