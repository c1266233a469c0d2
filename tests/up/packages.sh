#!/bin/bash
# The Debian package, and install.sh with a tarball: made the same each time, installed and removed in a directory.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
names() { (cd "$1" && find . ! -path './var/lib/dpkg*' ! -path './var/log*' | sort); }
# shellcheck source=tests/up/fake_release.sh
. "$TREE/tests/up/fake_release.sh"
release=$work/coracle-0.1.0-rc.1-linux-$(uname -m)
fake_release "$release"

# The package: the same bytes whenever and from wherever it is made.
first=$("$TREE/scripts/deb" "$release" "$work/one")
cp -r "$release" "$work/copy" && mkdir "$work/there" && mv "$work/copy" "$work/there/${release##*/}"
find "$work/there" -exec touch {} +
(umask 077 && "$TREE/scripts/deb" "$work/there/${release##*/}" "$work/two" > /dev/null)
cmp "$first" "$work/two/${first##*/}" || fail "the package is not reproducible"
[[ ${first##*/} == coracle_0.1.0-rc.1_*.deb && $(dpkg-deb -f "$first" Version) == 0.1.0~rc.1 ]] || fail "$first"
maintainer=$(sed -n 's/^authors = \["\(.*\)"\]$/\1/p' "$TREE/Cargo.toml")
[[ $maintainer == *" <"*@*">" && $(dpkg-deb -f "$first" Maintainer) == "$maintainer" ]] || fail "the maintainer is not that of Cargo.toml: $maintainer"
dpkg-deb -c "$first" | awk '{print $1, $2, $6}' > "$work/contents"
for line in '-rwxr-xr-x root/root ./usr/bin/coracle' '-rw------- root/root ./etc/coracle/agent.yaml' '-rwxr-xr-x root/root ./usr/lib/coracle/cni/bridge' \
    '-rw-r--r-- root/root ./usr/lib/systemd/system/coracle-server.service' '-rw-r--r-- root/root ./usr/share/man/man1/coracle.1.gz'; do
    grep -qx -- "$line" "$work/contents" || fail "not in the package: $line"
done

# dpkg COMMAND…: in a directory, without a chroot.
root=$work/root
pkg() { dpkg --root="$root" --force-script-chrootless --force-depends --log=/dev/null "$@" > "$work/said" 2>&1; }
mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root"/opt/cni/bin "$root/var/log/pods/default_web_1"
touch "$root/var/lib/dpkg/status"
echo theirs > "$root/opt/cni/bin/bridge"
names "$root" > "$work/before"
pkg -i "$first" || fail "$(cat "$work/said")"
grep -q 'nothing is started yet' "$work/said" || fail "$(cat "$work/said")"
grep -q '^ExecStart=/usr/bin/coracle server' "$root/usr/lib/systemd/system/coracle-server.service" || fail "the unit has another program"
grep -qx 'kubeconfig: /var/lib/coracle/agent/kubeconfig' "$root/etc/coracle/agent.yaml" || fail "the agent has no identity"
for plugin in kubectl-trace kubectl-why kubectl-coracle_ui; do
    [ "$(readlink "$root/usr/bin/$plugin")" = coracle ] || fail "$plugin is missing"
done
# A configuration that was changed stays through an upgrade and a removal.
echo 'advertise: 10.0.0.1' >> "$root/etc/coracle/server.yaml"
pkg -i "$first" || fail "$(cat "$work/said")"
pkg -r coracle || fail "$(cat "$work/said")"
grep -q 10.0.0.1 "$root/etc/coracle/server.yaml" || fail "the configuration is gone"
[ ! -e "$root/usr/bin/coracle" ] || fail "the program is still there"
mkdir -p "$root/var/lib/coracle/agent/pods/2" "$root/var/log/pods/default_own_2" "$root/var/log/containers"
ln -s /var/log/pods/default_own_2/own/0.log "$root/var/log/containers/own_default_own-3.log"
pkg -P coracle || fail "$(cat "$work/said")"
names "$root" | diff "$work/before" - || fail "something is left"
[ "$(ls "$root/var/log/pods")" = default_web_1 ] || fail "logs of others are gone, or own ones are left"
[ ! -e "$root/var/log/containers" ] || fail "links to own logs are left"
# Not beside what the install script has installed.
ROOT=$root "$release/install" server > /dev/null
if pkg -i "$first"; then fail "it installs beside the install script"; fi
grep -q 'install uninstall' "$work/said" || fail "$(cat "$work/said")"
ROOT=$root "$release/install" uninstall --purge > /dev/null

# install.sh, with a tarball.
target=$work/target tarball=$work/${release##*/}.tar.gz
tar -C "$work" -czf "$tarball" "${release##*/}"
run() { ROOT=$target sh "$TREE/scripts/install.sh" "$@" > "$work/said" 2>&1; }
refused() {
    local expected=$1 code=0
    shift
    run "$@" || code=$?
    if [ "$code" != 1 ] || ! grep -q -- "$expected" "$work/said"; then fail "install.sh $*: $code: $(cat "$work/said")"; fi
    [ ! -e "$target" ] || fail "install.sh $* leaves something"
}
refused 'there is no checksum' "$tarball" server
sha256sum "$tarball" > "$tarball.sha256"
refused 'there is no such file' "$work/none.tar.gz" server
refused 'is damaged: its checksum is not 00' --sha256 00 "$tarball" server
refused 'only https://' http://example.com/x.tar.gz server
refused 'signature\|minisign is missing' --key RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3 "$tarball" server
echo text > "$work/text.tar.gz" && sha256sum "$work/text.tar.gz" > "$work/text.tar.gz.sha256"
refused 'is no tarball of a release' "$work/text.tar.gz" server
mkdir "$work/coracle-1-linux-other" && tar -C "$work" -czf "$work/other.tar.gz" coracle-1-linux-other && sha256sum "$work/other.tar.gz" > "$work/other.tar.gz.sha256"
refused 'is for another machine' "$work/other.tar.gz" server
code=0
run "$tarball" || code=$?
[ "$code" = 2 ] || fail "without a role it ends with $code"
run "$tarball" server --advertise 10.0.0.1 || fail "$(cat "$work/said")"
grep -qx 'advertise: 10.0.0.1' "$target/etc/coracle/server.yaml" || fail "the option is not set"
echo "packed and unpacked"
