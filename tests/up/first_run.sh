#!/bin/bash
# The first run of somebody who has a release and nothing else: a tarball of the built programs, unpacked in an empty directory,
# `coracle up --demo`, the page in a browser, `coracle down --purge`, and nothing is left. BIN has the programs. CORACLE_SCREENSHOT names a
# file for the picture of the page.
set -euo pipefail
export LC_ALL=C
fail() { echo "$*"; exit 1; }
# seconds BEGIN: those since then.
seconds() { awk -v begun="$1" -v now="$EPOCHREALTIME" 'BEGIN { printf "%.2f", now - begun }'; }

if [ "${1:-}" != inside ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # Without images it would have no demo.
    CORACLE_BIN=$BIN "$TREE/scripts/package" --images --tarball --out "$work/release" > "$work/said" 2>&1 || fail "$(cat "$work/said")"
    mkdir "$work/home"
    unshare --mount --net --pid --uts --fork --mount-proc --kill-child --propagation private bash "$0" inside "$work"
    exit
fi

# A machine without a network, where everything that is left can be seen.
work=$2 page=${CORACLE_SCREENSHOT:-$2/page.png}
export HOME=$work/home CORACLE_OUTBOUND=false
unset CORACLE_DATA_DIR CORACLE_NAME KUBECONFIG CORACLE_BIN
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /mnt
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/kubelet
ip link set lo up
# shellcheck source=tests/up/look.sh
. "$TREE/tests/up/look.sh"
hub=none
tarballs=("$work"/release/coracle-*-linux-"$(uname -m)".tar.gz)
[ -f "${tarballs[0]}" ] || fail "there is no tarball: $(ls "$work/release")"
unpack() { tar -xzf "${tarballs[0]}" --strip-components=1; }

# What a tarball without images says, and that it starts nothing.
mkdir /mnt/without && cd /mnt/without
unpack && rm -r images
if bin/coracle up --demo > /run/said 2>&1; then fail "a demo without an image: $(cat /run/said)"; fi
grep -q "the image docker.io/library/nginx:latest is not there: there is no /mnt/without/images/nginx.tar" /run/said || fail "$(cat /run/said)"
[ ! -e /var/lib/coracle ] || fail "something was started: $(find /var/lib/coracle)"
cd / && rm -r /mnt/without /run/said

# The commands that look are gone when they are not looked for.
mkdir /mnt/release && cd /mnt/release
look | grep -v 'bash\|look' > "$work/before"
begun=$EPOCHREALTIME
unpack
unpacked=$(seconds "$begun")
bin/coracle up --demo > "$work/said" || fail "the demo fails: $(cat "$work/said")"
up=$(seconds "$begun")
url=$(sed -n 's/^open in a browser on this machine: //p' "$work/said")
[ -n "$url" ] || fail "there is no URL: $(cat "$work/said")"
if command -v chromium > /dev/null; then
    browser=chromium
    # browse OPTION…: opens the page; as root there is no sandbox of the browser's own.
    browse() {
        timeout 120 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking \
            --disable-component-update --disable-sync --no-proxy-server --window-size=800,400 --user-data-dir="$work/profile" "$@" "$url" 2> "$work/browser"
    }
    browse --dump-dom > "$work/dom" || fail "the browser fails: $(tail -5 "$work/browser")"
    seen=$(seconds "$begun")
    browse --screenshot="$page" > /dev/null || fail "the browser fails: $(tail -5 "$work/browser")"
    [ "$(head -c 4 "$page" | tail -c 3)" = PNG ] || fail "there is no picture of the page: $(tail -5 "$work/browser")"
else
    browser=curl
    curl -sf --max-time 10 "$url" > "$work/dom" || fail "$url does not answer"
    seen=$(seconds "$begun")
fi
grep -q '<h1>Welcome to nginx!</h1>' "$work/dom" || fail "another page: $(cat "$work/dom")"

# What was done is said, and the timeline is the last.
for part in 'deployment.apps/web created' 'service/web created' '3 of 3 pods of deployment.apps/web are ready' "$url answers after .* s"; do
    grep -qx "$part" "$work/said" || fail "not said: $part: $(cat "$work/said")"
done
python3 -I -S "$TREE/tests/up/timeline.py" 3 < "$work/said" || fail "the timeline at the end of the demo is wrong: $(cat "$work/said")"
# Once more: the same page, and nothing is created.
bin/coracle up --demo -o json > "$work/again" || fail "the second demo fails"
python3 -I -S -c 'import json,sys
demo = json.load(open(sys.argv[1]))["demo"]
assert (demo["url"], demo["created"], demo["ready"]) == (sys.argv[2], [], 3), demo' "$work/again" "$url"

hub=$(grep -A2 '"hub"' /var/lib/coracle/up.json | grep -o '[0-9]*' | paste -sd-)
bin/coracle down --purge > /dev/null
[ ! -e /var/lib/coracle ] || fail "state is left: $(find /var/lib/coracle)"
sha256sum --quiet -c SHA256SUMS || fail "the release was changed"
[ "$(find . -type f | wc -l)" = "$(($(wc -l < SHA256SUMS) + 1))" ] || fail "the release has other files"
cd / && rm -r /mnt/release && mkdir /mnt/release
for _ in $(seq 50); do
    look | grep -v 'bash\|look' > "$work/after"
    cmp -s "$work/before" "$work/after" && break
    sleep 0.2
done
diff "$work/before" "$work/after" || fail "something is left"
echo "unpacked after $unpacked s, the demo ran after $up s, $browser had its page after $seen s"
echo "nothing is left of the first run"
