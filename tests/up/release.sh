#!/bin/bash
# A release from end to end: scripts/package with programs that were not built from this tree, signed with minisign, and checked as those
# who fetch it do.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
# shellcheck source=tests/up/fake_build.sh
. "$TREE/tests/up/fake_build.sh"
fake_build "$work/bin"
package() { CORACLE_BIN=$work/bin "$TREE/scripts/package" "$@" > "$work/said" 2>&1; }
refused() {
    local expected=$1 code=0
    shift
    "$@" > "$work/said" 2>&1 || code=$?
    if [ "$code" = 0 ] || ! grep -q -- "$expected" "$work/said"; then fail "$*: $code: $(cat "$work/said")"; fi
}

# A key pair, and one of somebody else.
for name in ours theirs; do minisign -G -W -s "$work/$name.key" -p "$work/$name.pub" > /dev/null; done
refused 'there is no such file' package --sign "$work/none.key" --out "$work/none"
[ ! -e "$work/none" ] || fail "a release without its signatures is left"

# The same bytes each time, of everything.
package --sign "$work/ours.key" --out "$work/one" || fail "$(cat "$work/said")"
find "$work/bin" -exec touch {} +
(umask 077 && package --sign "$work/ours.key" --out "$work/two") || fail "$(cat "$work/said")"
diff -r "$work/one" "$work/two" || fail "the release is not reproducible"
tarball=coracle-0.1.0-linux-$(uname -m).tar.gz
cd "$work/one"
for file in "$tarball" "${tarball%.tar.gz}".{sbom.cdx.json,oci.tar} install.sh SHA256SUMS; do [ -s "$file" ] || fail "$file is missing: $(ls)"; done
compgen -G '*.deb' > /dev/null || fail "the Debian package is missing: $(ls)"
compgen -G '*.rpm' > /dev/null || fail "the RPM package is missing: $(ls)"
# Of what the programs are linked with, packages name the version.
dpkg-deb -f ./*.deb Depends | grep -qE '^libc6 \(>= 2\.[0-9]+(\.[0-9]+)?\), ' || fail "$(dpkg-deb -f ./*.deb Depends)"
rpm --dbpath "$work/db" -qp --requires ./*.rpm | grep -qE '^libc\.so\.6\(GLIBC_2\.[0-9]+(\.[0-9]+)?\)\(64bit\)$' || fail "the RPM package names no glibc"

# The image names its version and commit, and has what its programs are linked with.
mkdir "$work/layout" "$work/root"
tar -xf "${tarball%.tar.gz}.oci.tar" -C "$work/layout"
python3 - "$work/layout" "$(uname -m)" > "$work/layers" <<'IMAGE'
import hashlib, json, os, sys
def blob(descriptor):
    data = open(os.path.join(sys.argv[1], "blobs", *descriptor["digest"].split(":")), "rb").read()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"] and len(data) == descriptor["size"], descriptor
    return data
[entry] = json.load(open(os.path.join(sys.argv[1], "index.json")))["manifests"]
manifest = json.loads(blob(entry))
config = json.loads(blob(manifest["config"]))
arch = {"x86_64": "amd64", "aarch64": "arm64"}[sys.argv[2]]
assert (entry["platform"]["architecture"], config["architecture"], config["os"]) == (arch, arch, "linux"), config
assert entry["annotations"]["io.containerd.image.name"] == "coracle.local/coracle:0.1.0", entry
labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["config"]["Labels"].items()}
assert (labels["version"], labels["revision"]) == ("0.1.0", "5fc2e19"), labels
assert (config["config"]["Entrypoint"], config["config"]["Cmd"]) == (["coracle"], ["server"]), config
for layer in manifest["layers"]:
    blob(layer)
    print(layer["digest"].split(":")[1])
IMAGE
while read -r layer; do tar -xzf "$work/layout/blobs/sha256/$layer" -C "$work/root"; done < "$work/layers"
chroot "$work/root" /usr/bin/coracle-keeper || fail "the program does not run in the image: $(find "$work/root/lib"*)"
cmp "$work/bin/bridge" "$work/root/usr/lib/coracle/cni/bridge" || fail "the plugins are not in the image"
[ -s "$work/root/etc/ssl/certs/ca-certificates.crt" ] || fail "the image knows no CA"

# Every file has its checksum and its signature.
sha256sum --quiet -c SHA256SUMS || fail "the checksums are wrong"
tail -1 coracle.pub | cmp - <(tail -1 "$work/ours.pub") || fail "the public key is another one"
for file in *; do
    case $file in *.minisig | *.sha256 | coracle.pub) continue ;; esac
    [ "$file" = SHA256SUMS ] || grep -q "  $file\$" SHA256SUMS || fail "$file has no checksum"
    minisign -V -q -p coracle.pub -m "$file" || fail "$file is not signed"
    minisign -V -Q -p coracle.pub -m "$file" | grep -qx "coracle 0.1.0 $file" || fail "the signature of $file names something else"
done

# Not with another key, not the signature of another file, not one byte more.
refused 'verification failed\|key id' minisign -V -p "$work/theirs.pub" -m "$tarball"
refused 'verification failed' minisign -V -p coracle.pub -x install.sh.minisig -m "$tarball"
cp -r . "$work/changed"
cd "$work/changed"
echo >> "$tarball"
sha256sum "$tarball" > "$tarball.sha256"
refused 'verification failed' minisign -V -p coracle.pub -m "$tarball"
refused FAILED sha256sum -c SHA256SUMS
sed -i 's/^\(trusted comment: coracle\) 0.1.0/\1 0.2.0/' install.sh.minisig
refused 'verification failed' minisign -V -p coracle.pub -m install.sh

# install.sh asks minisign, and installs nothing that is not signed with the key.
target=$work/target
run() { ROOT=$target sh "$TREE/scripts/install.sh" "$@"; }
refused 'not signed with that key' run --key coracle.pub "$tarball" server
refused 'not signed with that key' run --key "$work/theirs.pub" "$work/one/$tarball" server
refused 'not signed with that key' run --key "$(tail -1 "$work/theirs.pub")" "$work/one/$tarball" server
rm "$tarball.minisig"
refused 'has no signature' run --key coracle.pub "$tarball" server
[ ! -e "$target" ] || fail "something was installed"
run --key "$work/ours.pub" "$work/one/$tarball" server > "$work/said" 2>&1 || fail "$(cat "$work/said")"
run --key "$(tail -1 "$work/ours.pub")" "$work/one/$tarball" uninstall --purge > "$work/said" 2>&1 || fail "$(cat "$work/said")"
[ -z "$(find "$target" ! -type d)" ] || fail "something is left: $(find "$target" ! -type d)"
echo "made, signed and checked"
