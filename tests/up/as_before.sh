#!/bin/bash
# What a cluster was like is known after a killed hub and after `down`; what cannot be done is said. Runs in a sandbox of tests/up.
set -euo pipefail
export HOME=/run PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /mnt
ip link set lo up
cd /mnt
trap 'coracle down --data-dir one > /dev/null' EXIT

unified=$(findmnt -t cgroup2 -n -o TARGET | head -1)
nodes() { grep -c '"holder"' one/up.json; }
hub() { grep -A2 '"hub"' one/up.json | grep -o '[0-9]*' | paste -sd-; }
# A control group as pods of the first node have.
leave_group() { mkdir -p "$unified/coracle-$1-node-1/kubepods/pod"; [ -n "$(groups "$1")" ]; }
groups() { find /sys/fs/cgroup -maxdepth 3 -type d -name "coracle-$1-*" 2>/dev/null || true; }
port() { { coracle doctor --json "$@" || true; } | grep -A2 '"name": "port ' | grep -o '"outcome": .*\|"seen": .*' | paste -sd' '; }
# A command that must fail, and what it then says.
fails() { if "$@" > /run/said 2>&1; then echo "it did not fail: $*"; exit 1; fi; cat /run/said; }

# A directory named from where the caller is; nothing there yet.
[ "$(coracle down --data-dir one)" = "no cluster in /mnt/one" ]
coracle up --data-dir one --nodes 2 | grep "2 node(s)"

# A server or an agent that is killed comes back by itself; who keeps them running stays.
child() { pgrep -P "$(grep -A1 "\"$1\": {" one/up.json | grep -o '[0-9]*' | head -1)" || true; }
for part in server agent; do
    killed=$(child $part)
    kill -9 "$killed"
    for _ in $(seq 200); do new=$(child $part); [ -z "$new" ] || [ "$new" = "$killed" ] || break; sleep 0.05; done
    [ -n "$new" ] && [ "$new" != "$killed" ]
done
curl -sk --max-time 30 https://127.0.0.1:6443/livez | grep ok
for log in one/server.log one/node-1/agent.log; do grep -q "failed and is started again" $log; done

# The hub is killed, and its nodes with it: there are as many again, and their old control groups are gone.
first=$(hub)
leave_group "$first"
kill -9 "${first%-*}"
while grep -qs '^State:.[^ZX]' "/proc/${first%-*}/status"; do sleep 0.01; done
coracle up --data-dir one | grep "2 node(s)"
[ "$(hub)" != "$first" ]
[ -z "$(groups "$first")" ]

# What cannot be had of a cluster that runs is said.
coracle up --data-dir one --nodes 1 --bind 127.0.0.1:7443 --server-flag=--v=9 > /dev/null 2> /run/notes
grep -q -- "^--nodes 1: not done, 2 nodes run" /run/notes
grep -q -- "^--bind 127.0.0.1:7443: not done, the cluster runs and listens on 127.0.0.1:6443" /run/notes
grep -q -- "^--server-flag: not done" /run/notes
[ "$(nodes)" = 2 ]

# A second cluster is told that the address is taken, by whom, and has started nothing.
fails coracle up --data-dir two | grep "127.0.0.1:6443 is in use already: .*--bind 127.0.0.1:0"
[ "$(coracle down --purge --data-dir two)" = "no cluster in /mnt/two" ] && [ ! -e two ]
port --data-dir one | grep '"ok".*coracle, process'
port --data-dir two | grep '"missing".*of another cluster in /mnt/one'
port --data-dir two --bind 127.0.0.1:7443 | grep '"ok".*free'

# Who is not root is told of the file and of sudo, and may see that the port is this cluster's.
cp "$BIN/coracle" /run/coracle # who is nobody may not get to the tree
nobody() { PATH=/run:$PATH setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
fails nobody coracle down --data-dir one | grep "/mnt/one/up.json.*sudo"
nobody bash -c "$(declare -f port); port --data-dir one" | grep '"ok".*while coracle, process'
nobody bash -c "$(declare -f port); port --data-dir two" | grep '"limited".*only root sees'

# After `down` it is the same cluster.
coracle down --data-dir one | grep -x "cluster down"
coracle down --data-dir one | grep -x "the cluster in /mnt/one is down already"
coracle up --data-dir one | grep "2 node(s)"
second=$(hub)
leave_group "$second"
kill -9 "${second%-*}"
coracle down --purge --data-dir one | grep -x "cluster down, state removed"
[ -z "$(groups "$second")" ] && [ ! -e one ]
echo "as before"
