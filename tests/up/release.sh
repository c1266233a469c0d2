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

# For the other architecture: its programs are run by qemu, which is another program here.
case $(uname -m) in x86_64) arch=arm64 machine=aarch64 ;; *) arch=amd64 machine=x86_64 ;; esac
mkdir "$work/tools"
# shellcheck disable=SC2016 # expanded by the program
printf '#!/bin/sh\n[ "$1 $2" = "-L /usr/%s-linux-gnu" ] || exit 9\nshift 2\necho ran >> "%s/ran"\nexec "$@"\n' "$machine" "$work" > "$work/tools/qemu-$machine"
chmod 755 "$work/tools/qemu-$machine"
# Of no architecture, so that it is linked with nothing.
echo coracle-keeper > "$work/bin/coracle-keeper"
PATH=$work/tools:$PATH package --arch "$arch" --out "$work/foreign" || fail "$(cat "$work/said")"
[ -s "$work/ran" ] || fail "the programs were run without qemu"
cd "$work/foreign"
sha256sum --quiet -c SHA256SUMS || fail "the checksums are wrong"
name=coracle-0.1.0-linux-$machine
[ "$(wc -l < SHA256SUMS)" = 6 ] || fail "$(cat SHA256SUMS)"
for file in "$name.tar.gz" "$name.oci.tar" "coracle_0.1.0_$arch.deb" "coracle-0.1.0-1.$machine.rpm"; do [ -s "$file" ] || fail "$file is missing: $(ls)"; done
[ "$(dpkg-deb -f ./*.deb Architecture)" = "$arch" ] || fail "$(dpkg-deb -f ./*.deb)"
tar -xOf "$name.oci.tar" index.json | grep -q "\"architecture\": \"$arch\"" || fail "$(tar -xOf "$name.oci.tar" index.json)"
refused 'is for another machine' run "$name.tar.gz" server

# What makes no sense is said before anything is made.
refused 'it is amd64 or arm64' package --arch mips --out "$work/none"
refused 'for one architecture' env PATH="$work/tools:$PATH" CORACLE_BIN="$work/bin" "$TREE/scripts/package" --arch amd64,arm64 --out "$work/none"
refused 'not for' env PATH="$work/tools:$PATH" CORACLE_BIN="$work/bin" "$TREE/scripts/package" --arch "$arch" --images --out "$work/none"
if git -C "$TREE" rev-parse HEAD > /dev/null 2>&1; then
    git clone -q --shared --no-checkout "$TREE" "$work/tree"
    git -C "$work/tree" checkout -q HEAD -- scripts Cargo.toml
    cp "$TREE/scripts/package" "$work/tree/scripts/"
    git -C "$work/tree" tag v99.0.0
    # Nothing is built, whatever it does.
    printf '#!/bin/sh\necho "nothing is built here" >&2\nexit 9\n' > "$work/tools/cargo"
    chmod 755 "$work/tools/cargo"
    refused 'has the tag v99.0.0, but its version is' env PATH="$work/tools:$PATH" "$work/tree/scripts/package" --out "$work/none"
fi
[ ! -e "$work/none" ] || fail "something is half done"
echo "made, signed and checked"
