#!/bin/bash
# scripts/install, into a directory that has things of others: it changes and removes only what it wrote.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
release=$work/release root=$work/root
fail() { echo "$*"; exit 1; }
run() { ROOT=$root "$release/install" "$@"; }
names() { (cd "$root" && find . | sort); }

# shellcheck source=tests/up/fake_release.sh
. "$TREE/tests/up/fake_release.sh"
fake_release "$release"

# Of others: plugins with the same names, configurations, addresses, logs, a plugin of kubectl.
mkdir -p "$root"/opt/cni/bin "$root"/etc/cni/net.d "$root"/var/lib/cni/{networks/other,results} "$root"/var/log/pods/default_web_1234 "$root/var/log/containers" "$root/usr/local/bin"
ln -s /var/log/pods/default_web_1234/web/0.log "$root/var/log/containers/web_default_web-1.log"
echo theirs | tee "$root/opt/cni/bin/bridge" "$root/etc/cni/net.d/99-coracle-like.conf" "$root/var/lib/cni/results/other-1-eth0" \
    "$root/usr/local/bin/kubectl-why" > "$root/var/log/pods/default_web_1234/0.log"
names > "$work/before"

run server --advertise 10.0.0.1 > /dev/null
run agent > /dev/null 2>&1
grep -qx 'advertise: 10.0.0.1' "$root/etc/coracle/server.yaml" || fail "the option is not set"
[ "$(cat "$root/opt/cni/bin/bridge" "$root/usr/local/bin/kubectl-why")" = "$(printf 'theirs\ntheirs')" ] || fail "a file of others was replaced"
[ -x "$root/usr/local/lib/coracle/cni/bridge" ] || fail "the plugins are not installed"
sed -n 's/^\([0-9a-f]\{64\}\)  /\1  /p' "$root/usr/local/share/coracle/installed" | sed "s|  /|  $root/|" | sha256sum --quiet -c || fail "the list is wrong"

# What a node would leave.
mkdir -p "$root"/var/lib/coracle/agent/pods/5678 "$root/var/log/pods/default_own_5678"
ln -s /var/log/pods/default_own_5678/own/0.log "$root/var/log/containers/own_default_own-2.log"
echo ours > "$root/etc/cni/net.d/10-coracle.conflist"
echo newer >> "$release/bin/coracle"
seal_release "$release"
run upgrade > /dev/null
cmp -s "$release/bin/coracle" "$root/usr/local/bin/coracle" || fail "the program is not upgraded"
run uninstall --purge > /dev/null
names | diff "$work/before" - || fail "something is left, or missing"

# A program that is there already is not replaced, and then nothing is installed.
echo theirs > "$root/usr/local/bin/coracle"
if run server > "$work/said" 2>&1; then fail "a file of others was replaced"; fi
grep -q 'in its way: /usr/local/bin/coracle;' "$work/said" || fail "$(cat "$work/said")"
rm "$root/usr/local/bin/coracle"
names | diff "$work/before" - || fail "something is half done"

# A file that was changed stays.
run server > /dev/null
echo changed >> "$root/etc/systemd/system/coracle-server.service"
run uninstall > "$work/said" 2>&1
grep -q 'coracle-server.service was changed since' "$work/said" || fail "$(cat "$work/said")"
[ -e "$root/etc/systemd/system/coracle-server.service" ] || fail "a changed file was removed"

# A version that is older is refused with its reason, and nothing is changed; a newer or the same one, or one that is unknown, is not.
run uninstall --purge > /dev/null 2>&1
rm -rf "${root:?}/etc/systemd"
names | diff "$work/before" - || fail "something is left, or missing"
run server > /dev/null
chmod 755 "$release/bin/coracle"
program() { printf '#!/bin/sh\necho coracle %s\n' "$1"; }
while read -r there new expected; do
    program "$there" > "$root/usr/local/bin/coracle"
    program "$new" > "$release/bin/coracle"
    seal_release "$release"
    cp "$root/usr/local/bin/coracle" "$work/there"
    code=0
    run upgrade > "$work/said" 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "$new over $there: $code: $(cat "$work/said")"
    if [ "$expected" = 0 ]; then
        cmp -s "$release/bin/coracle" "$root/usr/local/bin/coracle" || fail "$new is not installed over $there"
    else
        grep -q "$there is installed, and this is $new, which is older .*--allow-downgrade" "$work/said" || fail "$(cat "$work/said")"
        cmp -s "$work/there" "$root/usr/local/bin/coracle" || fail "$there was replaced"
    fi
done <<'VERSIONS'
0.1.0 0.1.0 0
0.1.0 0.1.1 0
0.9.0 0.10.0 0
0.10.0 0.9.0 1
1.0.0 0.99.99 1
1.0.0-rc.1 1.0.0 0
1.0.0 1.0.0-rc.1 1
1.0.0-rc.2 1.0.0-rc.10 0
1.0.0-rc.10 1.0.0-rc.2 1
1.0.0-rc 1.0.0-rc.1 0
1.0.0-rc.1 1.0.0-beta.2 1
1.0.0-1 1.0.0-alpha 0
1.0.0-alpha 1.0.0-1 1
unknown 0.1.0 0
1.0.0 unknown 0
VERSIONS
program 0.2.0 > "$root/usr/local/bin/coracle"
program 0.1.0 > "$release/bin/coracle"
seal_release "$release"
if run server > "$work/said" 2>&1; then fail "an older version was installed"; fi
run upgrade --allow-downgrade > /dev/null
cmp -s "$release/bin/coracle" "$root/usr/local/bin/coracle" || fail "a downgrade that is allowed is not done"
run uninstall --purge > /dev/null
names | diff "$work/before" - || fail "something is left, or missing"

# Words that make no sense change nothing.
rm -rf "${root:?}/etc/systemd" "$root/etc/coracle"
for words in "" "nothing" "server --nonsense 1" "server --advertise" "server x" "upgrade --force" "uninstall --all" "agent --server https://10.0.0.1:6443"; do
    # shellcheck disable=SC2086 # words
    if run $words > /dev/null 2> "$work/said"; then fail "install $words succeeds"; else code=$?; fi
    [ "$code" = 2 ] || fail "install $words ends with $code"
    [ -s "$work/said" ] || fail "install $words says nothing"
    names | diff "$work/before" - || fail "install $words leaves something half done"
done
echo "only its own"
