#!/bin/bash
# The RPM package: made the same each time, installed, upgraded and removed in a root of its own. Needs root, for chroot.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
names() { (cd "$1" && find . ! -path './var/lib/rpm*' | sort); }
# shellcheck source=tests/up/fake_release.sh
. "$TREE/tests/up/fake_release.sh"
release=$work/coracle-0.1.0-rc.1-linux-x86_64
fake_release "$release"
echo two >> "$release/docs/a page.md"
seal_release "$release"

# The same bytes whenever, from wherever and as whomever it is made; for other machines, too.
first=$("$TREE/scripts/rpm" "$release" "$work/one")
[ "${first##*/}" = coracle-0.1.0-rc.1-1.x86_64.rpm ] || fail "$first"
mkdir "$work/there" && cp -r "$release" "$work/there/"
find "$work/there" -exec touch {} +
(umask 077 && HOME=$work/there "$TREE/scripts/rpm" "$work/there/${release##*/}" "$work/two" > /dev/null)
cmp "$first" "$work/two/${first##*/}" || fail "the package is not reproducible"
[ "$(cd "$work/there" && ls -A)" = "${release##*/}" ] || fail "it writes to the home directory"
mv "$work/there/${release##*/}" "$work/there/coracle-0.2.0-linux-aarch64"
foreign=$("$TREE/scripts/rpm" "$work/there/coracle-0.2.0-linux-aarch64" "$work/two")
# rpm COMMAND…: with a database that is not the machine's.
query() { rpm --dbpath "$work/db" "$@"; }
[ "$(query -qp --qf '%{ARCH} %{VERSION}' "$foreign")" = "aarch64 0.2.0" ] || fail "$(query -qpi "$foreign")"
mv "$work/there/coracle-0.2.0-linux-aarch64" "$work/there/coracle-0.2.0-linux-riscv64"
if "$TREE/scripts/rpm" "$work/there/coracle-0.2.0-linux-riscv64" "$work/two" 2> "$work/said"; then fail "there is a package for riscv64"; fi
grep -q 'no RPM architecture for riscv64' "$work/said" || fail "$(cat "$work/said")"

# What is in it, of whom, and that it is whole.
query -qplv "$first" | awk '{print $1, $3, $4, $9}' > "$work/contents"
for line in '-rwxr-xr-x root root /usr/bin/coracle' '-rw------- root root /etc/coracle/agent.yaml' '-rwxr-xr-x root root /usr/lib/coracle/cni/bridge' \
    '-rw-r--r-- root root /usr/lib/systemd/system/coracle-server.service' '-rw-r--r-- root root /usr/share/man/man1/coracle.1.gz' \
    'lrwxrwxrwx root root /usr/bin/kubectl-why'; do
    grep -qx -- "$line" "$work/contents" || fail "not in the package: $line"
done
! query -qpl "$first" | grep -xE '/(usr|etc|usr/bin|usr/lib/systemd/system)' || fail "directories of others are in the package"
[ "$(query -qpc "$first")" = "$(printf '/etc/coracle/agent.yaml\n/etc/coracle/server.yaml')" ] || fail "the configuration is not marked"
maintainer=$(sed -n 's/^authors = \["\(.*\)"\]$/\1/p' "$TREE/Cargo.toml")
[ "$(query -qp --qf '%{PACKAGER}' "$first")" = "$maintainer" ] || fail "the maintainer is not that of Cargo.toml"
[ "$(query -qp --qf '%{VERSION}' "$first")" = 0.1.0~rc.1 ] || fail "$(query -qpi "$first")"
query -K "$first" | grep -q 'digests OK' || fail "$(query -K "$first")"
cp "$first" "$work/damaged.rpm"
printf x | dd of="$work/damaged.rpm" bs=1 seek=$(($(stat -c %s "$first") - 100)) conv=notrunc status=none
if query -K "$work/damaged.rpm" > "$work/said" 2>&1; then fail "a damaged package is whole: $(cat "$work/said")"; fi

# A root with a shell, and with something of others.
root=$work/root
pkg() { rpm --root "$root" --dbpath /var/lib/rpm --nodeps "$@" > "$work/said" 2>&1; }
mkdir -p "$root"/{bin,etc,opt/cni/bin,tmp,var/{lib/rpm,tmp},var/log/pods/default_web_1} "$root"/usr/{bin,lib/systemd/system,share/{doc,licenses,man/man1}}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh stat; do ln -s busybox "$root/bin/$applet"; done
echo theirs > "$root/opt/cni/bin/bridge"
names "$root" > "$work/before"
pkg -i "$first" || fail "$(cat "$work/said")"
grep -q 'nothing is started yet' "$work/said" || fail "$(cat "$work/said")"
pkg -V coracle || fail "what is installed is not what was packed: $(cat "$work/said")"
grep -q '^ExecStart=/usr/bin/coracle server' "$root/usr/lib/systemd/system/coracle-server.service" || fail "the unit has another program"
grep -qx 'kubeconfig: /var/lib/coracle/agent/kubeconfig' "$root/etc/coracle/agent.yaml" || fail "the agent has no identity"
[ "$(readlink "$root/usr/bin/kubectl-why")" = coracle ] || fail "kubectl-why is missing"
pkg -e coracle || fail "$(cat "$work/said")"
names "$root" | diff "$work/before" - || fail "something is left"

# 0.1.0 comes after 0.1.0-rc.1. A configuration that was changed stays through an upgrade, and beside its name through a removal.
pkg -i "$first" || fail "$(cat "$work/said")"
echo 'advertise: 10.0.0.1' >> "$root/etc/coracle/server.yaml"
newer=$work/coracle-0.1.0-linux-x86_64
cp -r "$release" "$newer"
echo newer > "$newer/bin/coracle"
echo '#other:' >> "$newer/etc/server.yaml"
second=$("$TREE/scripts/rpm" "$newer" "$work/one")
pkg -U "$second" || fail "$(cat "$work/said")"
if grep -q 'nothing is started yet' "$work/said"; then fail "an upgrade is said to be new"; fi
[ "$(cat "$root/usr/bin/coracle")" = newer ] || fail "the program is not upgraded"
grep -q 10.0.0.1 "$root/etc/coracle/server.yaml" || fail "the configuration is replaced"
if pkg -U "$first"; then fail "it is downgraded"; fi
mkdir -p "$root/var/lib/coracle/agent"
pkg -e coracle || fail "$(cat "$work/said")"
grep -q 10.0.0.1 "$root/etc/coracle/server.yaml.rpmsave" || fail "the configuration is gone"
[ -d "$root/var/lib/coracle/agent" ] || fail "state is gone"
rm -r "$root/etc/coracle" "$root/var/lib/coracle"
names "$root" | diff "$work/before" - || fail "something is left"

# Not beside what the install script has installed.
ROOT=$root "$release/install" server > /dev/null
if pkg -i "$first"; then fail "it installs beside the install script"; fi
grep -q 'install uninstall' "$work/said" || fail "$(cat "$work/said")"
ROOT=$root "$release/install" uninstall --purge > /dev/null
[ "$(cat "$root/opt/cni/bin/bridge")" = theirs ] || fail "a file of others was replaced"
echo "in and out of a root"
