#!/bin/bash
# Pods reach what the machine reaches, by address and by name; without that they are refused at once. Runs in a sandbox of tests/up,
# whose network is the machine's, with one more that is the world outside.
set -euo pipefail
cd "$TREE"
export CORACLE_DATA_DIR=/mnt/cluster HOME=/run PATH="$BIN:$PATH"
unset CORACLE_NAME CORACLE_OUTBOUND
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /mnt
ip link set lo up

# Outside: a web server. On the machine: a name server on its loopback, where nodes cannot ask it themselves.
mkdir /run/www
echo "hello from outside" > /run/www/index.html
unshare --net sleep infinity &
outside=$!
while [ "$(readlink /proc/$outside/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add eth0 type veth peer name eth0 netns $outside
ip address add 198.51.100.1/24 dev eth0
ip link set eth0 up
ip route add default via 198.51.100.2
there() { nsenter --net=/proc/$outside/ns/net "$@"; }
there ip link set lo up
there ip address add 198.51.100.2/24 dev eth0
there ip link set eth0 up
there python3 -m http.server 80 --directory /run/www > /run/www.log 2>&1 &
python3 - << 'END' &
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))
while True:
    query, client = server.recvfrom(512)
    at = 12
    while query[at]:
        at += query[at] + 1
    name, kind = query[12 : at + 1].lower(), query[at + 1 : at + 3]
    known = name.endswith(b"\7outside\4test\0")
    found = known and kind == b"\0\1"
    head = query[:2] + (b"\x81\x80" if known else b"\x81\x83") + b"\0\1\0" + bytes([found]) + b"\0\0\0\0"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + bytes([198, 51, 100, 2])
    server.sendto(head + query[12 : at + 5] + (record if found else b""), client)
END
echo "nameserver 127.0.0.53" > /run/names
file=$(readlink -m /etc/resolv.conf)
case $file in /run/*) mkdir -p "${file%/*}"; : > "$file" ;; esac
mount --bind /run/names "$file"
for _ in $(seq 500); do grep -qs : /run/www.log && break; there curl -s 127.0.0.1 > /dev/null || true; sleep 0.01; done

look() {
    for comm in /proc/[0-9]*/comm; do cat "$comm" 2> /dev/null || true; done | grep -v 'bash\|cat\|grep\|sleep\|sort' | sort
    ip -br link; ip -4 route show table all; ip rule; nft list ruleset; cat /proc/self/mounts; find /mnt
}
look > /run/before
images=(--image .cache/images/tools.tar)
kubectl=$(scripts/kubectl)
export KUBECONFIG=/mnt/cluster/admin.kubeconfig
k() { "$kubectl" "$@"; }
# What a command says and how long it took, in milliseconds.
timed() { local begun; begun=$(date +%s%N); said=$("$@" 2>&1) || true; took=$((($(date +%s%N) - begun) / 1000000)); echo "$took ms: $said"; }
get() { k exec box -- curl -sS --max-time 9 "http://$1/"; }
# Why a pod's image is not there.
unpulled() {
    k run "$1" --image=registry.outside.test/app > /dev/null
    for _ in $(seq 300); do
        why=$(k get pod "$1" -o 'jsonpath={.status.containerStatuses[0].state.waiting.message}')
        [ -z "$why" ] || break
        sleep 0.05
    done
    echo "$why"
}

coracle up "${images[@]}" 2> /run/said
[ ! -s /run/said ] || { cat /run/said; exit 1; }
k run box --image=coracle.local/tools
k wait --for=condition=Ready pod/box --timeout=60s
[ "$(get 198.51.100.2)" = "hello from outside" ]
[ "$(get www.outside.test)" = "hello from outside" ]
# What takes as long on this machine: a command in the pod, and a pull that is refused.
timed k exec box -- true
usual=$took
timed unpulled found
pull=$took
grep -i "connection refused" <<< "$said"
# The machine's own loopback is not outside.
if get 10.89.1.2; then echo "the machine's loopback is reached"; exit 1; fi

# It is started again when it was killed, and nothing else changes.
way=$(pgrep -x slirp4netns)
cp /mnt/cluster/up.json /run/up.json
coracle up > /dev/null
cmp /mnt/cluster/up.json /run/up.json
kill -9 "$way"
timed get 198.51.100.2
[ "$took" -lt $((usual + 5000)) ] && [[ $said == *"exit code 7"* ]]
coracle up > /dev/null
[ "$(get www.outside.test)" = "hello from outside" ]

# Without it nodes and pods are told at once, in a cluster that runs and in one that is new.
coracle up --outbound=false > /dev/null
[ -z "$(pgrep -x slirp4netns)" ]
timed get 198.51.100.2
[ "$took" -lt $((usual + 5000)) ] && [[ $said == *"exit code 7"* ]]
timed unpulled lost
[ "$took" -lt $((pull + 5000)) ]
[ "$(coracle down --purge)" = "cluster down, state removed" ]
slirp=$(command -v slirp4netns)
mount --bind /dev/null "$slirp"
coracle up 2>&1 | tee /run/said
grep -q "nodes have no way out.*slirp4netns is missing (apt-get install slirp4netns)" /run/said
umount "$slirp"
coracle down --purge

for _ in $(seq 50); do
    look > /run/after
    ! cmp -s /run/before /run/after || break
    sleep 0.1
done
diff /run/before /run/after
echo "in and out"
