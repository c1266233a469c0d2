#!/bin/bash
# Images of a registry whose certificate a private CA signed: docs/howto/private-ca.md. Runs in a sandbox of tests/up.
set -euo pipefail
cd "$TREE"
export HOME=/run PATH="$BIN:$PATH"
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /mnt
ip link set lo up
# Registries at 127.0.0.1 are asked without TLS.
host=10.9.9.9
ip address add $host/32 dev lo
fail() { echo "$*"; exit 1; }
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# Two authorities, and a certificate of the first.
cd /mnt
key() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -subj "/CN=$1" "${@:2}" 2> /dev/null; }
for name in ours theirs; do key $name -x509 -days 2 -out $name.crt; done
key registry -out registry.csr
echo "subjectAltName=IP:$host" > extensions
openssl x509 -req -in registry.csr -CA ours.crt -CAkey ours.key -CAcreateserial -days 2 -extfile extensions -out registry.crt 2> /dev/null

# serve SCHEME PORT [MORE]: a registry; all of them have the same images.
serve() {
    printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: /mnt/images}}\nhttp: {addr: "%s"%s}\n' "$host:$2" "${3:-}" > "$1.yml"
    docker-registry serve "$1.yml" > "$1.log" 2>&1 &
    for _ in $(seq 1200); do
        if curl -sk --max-time 5 -o /dev/null "$1://$host:$2/v2/"; then return; fi
        sleep 0.05
    done
    fail "the registry does not answer: $(cat "$1.log")"
}
serve http 5000
"$TREE/scripts/images" push "$host:5000" > /run/pushed
serve https 5443 ', tls: {certificate: /mnt/registry.crt, key: /mnt/registry.key}'

# pull CA: the exit code; what was said is in /run/said.
image=$host:5443/library/busybox:latest
agent() { coracle-agent image --image-dir /mnt/store --registries /mnt/registries.yaml "$@"; }
pull() {
    printf 'configs:\n  %s:\n    tls: {ca_file: %s}\n' "$host:5443" "$1" > registries.yaml
    agent pull $image > /run/said 2>&1
}
for ca in '""' /mnt/theirs.crt; do
    if pull "$ca"; then fail "$ca: an unknown authority is trusted"; fi
    grep -q 'invalid peer certificate: UnknownIssuer' /run/said || fail "$ca: $(cat /run/said)"
done
if pull /mnt/none.crt; then fail "an authority that is not there is trusted"; fi
grep -q /mnt/none.crt /run/said || fail "$(cat /run/said)"
[ -z "$(agent ls --quiet)" ] || fail "something was pulled: $(agent ls)"
pull /mnt/ours.crt || fail "$(cat /run/said)"
agent ls | grep -q "^$image " || fail "$(agent ls)"
echo "trusted by its CA"
