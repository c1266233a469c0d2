#!/bin/bash
# `scripts/up --demo` with the built programs: nginx answers inside and outside of the cluster, and the short form of the timeline is the
# last. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run CORACLE_BIN=$BIN
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG SUDO_USER SUDO_UID SUDO_GID
fail() { echo "demo.sh: $1"; cat /run/said /run/steps; exit 1; }
mount -t tmpfs -o mode=755 tmpfs /run
# Packages are looked up, and the images are made of them.
mkdir /run/dpkg
mount --bind /var/lib/dpkg /run/dpkg
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/kubelet /var/lib/dpkg
mount --bind /run/dpkg /var/lib/dpkg
ip link set lo up
trap '"$BIN/coracle" down --purge > /dev/null || true' EXIT

begun=$SECONDS
scripts/up --demo > /run/said 2> /run/steps || fail "it ends with exit code $?"
took=$((SECONDS - begun))
page='<h1>Welcome to nginx!</h1>'
# The Service from the node, then the URL from this machine.
grep -q "$page" /run/said || fail "the Service has no page"
url=$(sed -n 's/^open in a browser on this machine: //p' /run/said)
[ -n "$url" ] || fail "no URL is printed"
curl -sf --max-time 10 "$url" > /run/page || fail "$url does not answer"
grep -q "$page" /run/page || fail "$url is another page: $(cat /run/page)"
python3 -I -S tests/up/timeline.py 3 < /run/said || fail "the timeline at its end is wrong"
echo "the demo took $took s"
echo "answered and explained"
