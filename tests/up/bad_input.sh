#!/bin/bash
# Commands and what can be wrong with them: an unknown name, a value of another type, a port that is taken, no root, a full disk, no
# cluster, a cluster that is down. Each ends with the code of docs/reference/programs.md, says in one line what is wrong with which
# object, and has changed nothing. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run/home PATH="$BIN:$PATH"
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /run/home /run/said /run/bin /var/lib/kubelet
ip link set lo up
end() { coracle down --purge > /dev/null || true; [ -z "${taker:-}" ] || kill "$taker" || true; }
trap end EXIT

failed=0
# Files, and processes of ours: a cluster that runs writes files all the time, so only what it does not change by itself is looked at.
look() {
    if [ -e /run/said/runs ]; then cat /var/lib/coracle/up.json; else find /var/lib -printf '%p %y %s %T@\n' | sort; fi
    { find /mnt /etc/coracle /run/home -printf '%p %y %s\n' 2>/dev/null || true; } | sort
    pgrep -c -r R,S,D coracle || true
}
# bad CODE STREAM PATTERN COMMAND…: it must end so, with one line that fits the pattern on that stream (`err`, or `out` for answers).
bad() {
    local code=$1 stream=$2 pattern=$3 got=0 problem=
    shift 3
    look > /run/said/before
    timeout 60 "$@" < /dev/null > /run/said/out 2> /run/said/err || got=$?
    look > /run/said/after
    [ "$got" = "$code" ] || problem="exit code $got instead of $code"
    grep -qE -- "$pattern" "/run/said/$stream" || problem="$problem; no \`$pattern\`"
    # Wrong usage is followed by how to use it.
    if [ "$code" != 2 ] && [ "$stream" = err ]; then
        [ "$(wc -l < /run/said/err)" = 1 ] || problem="$problem; not one line"
        [ ! -s /run/said/out ] || problem="$problem; an answer, too"
    fi
    cmp -s /run/said/before /run/said/after || problem="$problem; $(diff /run/said/before /run/said/after | head -5 || true)"
    [ -n "$problem" ] || return 0
    failed=1
    printf '%s\n  %s\n' "$*" "$problem"
    sed 's/^/  | /' /run/said/out /run/said/err
}
cp "$BIN/coracle" /run/bin/coracle # who is nobody may not get to the tree
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups -- /run/bin/coracle"

# Values of other types, and words that there are not. Nothing has to run for that to be seen.
while IFS='|' read -r pattern line; do
    # shellcheck disable=SC2086 # the words of a line
    bad 2 err "$pattern" $line
done <<'ROWS'
unrecognized subcommand 'upp'|coracle upp
unexpected argument '--node'|coracle up --node
invalid value 'x' for '--nodes|coracle up --nodes x
invalid value '0' for '--nodes|coracle up --nodes 0
invalid value 'x' for '--nodes|env CORACLE_UP_NODES=x coracle up
invalid value "A" of CORACLE_NAME|env CORACLE_NAME=A coracle status
invalid value 'nowhere' for '--bind|coracle up --bind nowhere
invalid value 'x' for '--publish|coracle up --publish x
invalid value 'x' for '--registry|coracle up --registry=x
invalid value 'A_B' for '--name|coracle up --name A_B
invalid value '0' for '\[COUNT\]|coracle node add 0
required arguments|coracle node rm
invalid value 'x' for '--timeout|coracle node rm --timeout x node-1
invalid value 'nobody' for|coracle logs nobody
invalid value 'x' for '--tail|coracle logs --tail x
required arguments|coracle image load
invalid value 'x' for '--from|coracle image load --from x y
invalid value 'xml' for '--output|coracle kubeconfig --output xml
invalid value 'soon' for '--ttl|coracle kubeconfig --user jane --ttl soon
invalid value '0' for '--ttl|coracle kubeconfig --user jane --ttl 0
invalid value '5é' for '--ttl|coracle token create --ttl 5é
invalid value 'x' for '--role|coracle doctor --role x
invalid value 'x' for '--role|coracle config validate --role x
invalid value 'x' for|coracle completion x
invalid value 'many' for '--nodes|coracle hollow --nodes many
invalid value 'x' for '--days|coracle certificate check --days x
invalid value 'x' for|coracle certificate rotate-ca x
required arguments|coracle store copy
required arguments|coracle revoke-node
required arguments|coracle member remove
required arguments|coracle restore
invalid value 'x' for '--keep|coracle backup prune --keep x /mnt
required arguments|coracle-agent join
invalid value '300' for '--high|coracle-agent image gc --high 300
invalid value 'many' for '--max-pods|coracle-agent run --max-pods many
ROWS

# No cluster at all.
while IFS='|' read -r pattern line; do
    # shellcheck disable=SC2086
    bad 1 err "^Error: .*$pattern" $line
done <<'ROWS'
no cluster of `coracle up` in /var/lib/coracle|coracle node add
no cluster of `coracle up` in /var/lib/coracle-clusters/a|coracle node rm --name a node-1
there is no cluster in /var/lib/coracle|coracle kubeconfig
there is no cluster in /var/lib/coracle|env CORACLE_KUBECONFIG_TTL=1h coracle kubeconfig
there is no cluster in /var/lib/coracle-clusters/a|coracle kubectl --name a get nodes
nor the service coracle-server is on this machine|coracle logs
there is no node on this machine|coracle image load nginx
/none.tar: there is no such file|coracle up --image /none.tar
/var/lib/coracle/admin.kubeconfig: No such file|coracle token list
/var/lib/coracle/admin.kubeconfig: No such file|coracle status
/var/lib/coracle/admin.kubeconfig: No such file|coracle revoke-node node-1
/var/lib/coracle/admin.kubeconfig: No such file|coracle store resume
/var/lib/coracle/admin.kubeconfig: No such file|coracle secrets-encrypt status
/var/lib/coracle/admin.kubeconfig: No such file|coracle certificate rotate-ca status
/var/lib/coracle/admin.kubeconfig: No such file|coracle backup save /mnt/backup
/var/lib/coracle/pki|coracle certificate check
"x" cannot be renewed|coracle certificate rotate x
the server of /var/lib/coracle runs no etcd member|coracle member ls
/mnt/none|coracle restore /mnt/none --data-dir /mnt/new
/mnt/none.yaml|coracle-agent config validate /mnt/none.yaml
ROWS
bad 1 out "^/mnt/none.yaml: " coracle config validate /mnt/none.yaml

# A port that is taken.
python3 -c 'import os, signal, socket, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
taken = socket.create_server(("127.0.0.1", 6443))
print("there", flush=True)
time.sleep(600)' > /run/said/taken &
taker=$!
while [ ! -s /run/said/taken ]; do sleep 0.05; done
bad 1 err "^Error: 127.0.0.1:6443 is in use already" coracle up
bad 1 err "^Error: 127.0.0.1:6443 is in use already" coracle up --name a --bind 127.0.0.1:6443
bad 1 err "^Error: --publish 6443:.*port 6443 is in use already" coracle up --bind 127.0.0.1:0 --publish 6443:web:80
kill "$taker"
wait "$taker" || true
taker=

# A full disk.
mkdir /mnt/full
mount -t tmpfs -o size=64k tmpfs /mnt/full
dd if=/dev/zero of=/mnt/full/fill bs=4k 2> /dev/null || true
bad 1 err "^Error: /mnt/full/x/up.json.*No space left on device" coracle up --data-dir /mnt/full/x

# A cluster that is down.
coracle up > /dev/null
coracle down > /dev/null
while IFS='|' read -r pattern line; do
    # shellcheck disable=SC2086
    bad 1 err "^Error: .*$pattern" $line
done <<'ROWS'
the cluster in /var/lib/coracle is down: `coracle up` starts it|coracle node add
the cluster in /var/lib/coracle is down: `coracle up` starts it|coracle node rm node-1
/var/lib/coracle is a cluster of `coracle up`|coracle reset --yes
https://127.0.0.1:6443|coracle token list
https://127.0.0.1:6443|coracle token create
https://127.0.0.1:6443|coracle revoke-node node-1
https://127.0.0.1:6443|coracle store resume
https://127.0.0.1:6443|coracle secrets-encrypt status
https://127.0.0.1:6443|coracle certificate rotate-ca status
https://127.0.0.1:6443|coracle backup save /mnt/backup
the cluster is down: coracle up|coracle logs agent --node node-9
./none.tar: there is no such file|coracle image load ./none.tar
ROWS
bad 1 out "https://127.0.0.1:6443" coracle status

# No root.
while IFS='|' read -r pattern words; do
    # shellcheck disable=SC2086
    bad 1 err "^Error: .*$pattern" $nobody $words
done <<'ROWS'
needs root|up
/var/lib/coracle/up.json is for root alone|down
needs root|node rm node-1
needs root|reset --yes
needs root|image load nginx
/var/lib/coracle/up.json is for root alone|logs
/var/lib/coracle/admin.kubeconfig is for root alone|kubeconfig
/var/lib/coracle/admin.kubeconfig is for root alone|kubectl get nodes
/var/lib/coracle/admin.kubeconfig: Permission denied|token list
/var/lib/coracle/admin.kubeconfig: Permission denied|status
/var/lib/coracle/admin.kubeconfig: Permission denied|backup save /mnt/backup
/var/lib/coracle/pki|certificate check
ROWS

# Names that a cluster does not have, a port that it has itself, and a full disk for its backup.
coracle up > /dev/null
touch /run/said/runs
while IFS='|' read -r pattern line; do
    # shellcheck disable=SC2086
    bad 1 err "^Error: .*$pattern" $line
done <<'ROWS'
there is no node node-9 in the cluster|coracle node rm node-9
there is no node node-9|coracle logs agent --node node-9
node "node-9" is not known|coracle revoke-node node-9
abcdef.*not found|coracle token revoke abcdef
cannot listen on 127.0.0.1:6443|coracle ui --no-open --port 6443 --kubeconfig /var/lib/coracle/admin.kubeconfig
no backup was made: .*No space left on device|coracle backup save /mnt/full/
ROWS
[ "$failed" = 0 ]
echo "said, and nothing changed"
