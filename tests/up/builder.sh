#!/bin/bash
# scripts/up with stand-ins for everything that it runs: who builds, which PATH it prints, and what it says on other systems.
# shellcheck disable=SC2016 # expanded by the stand-ins
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "builder.sh: $1" >&2; exit 1; }
home=$work/home bin=$work/bin
mkdir -p "$work/tree" "$home/.cargo/bin" "$bin"
cp -r "${TREE:?}/scripts" "$work/tree/scripts"
tree=$work/tree
# stand_in FILE: a program from standard input.
stand_in() { { echo '#!/bin/bash'; cat; } > "$1"; chmod +x "$1"; }

stand_in "$bin/id" <<< 'echo 0'
stand_in "$bin/getent" <<< "[ \"\$*\" = 'passwd ann' ] && echo 'ann:x:1000:1000::$home:/bin/sh'"
stand_in "$bin/sudo" <<< '[ "$1 $2 $3" = "-H -u ann" ] && shift 3 && BUILDER=ann exec "$@"'
stand_in "$bin/apt-get" <<< 'echo "apt-get $*" >&2; exit 1'
stand_in "$bin/kubectl" <<< 'case $1 in version) echo "{\"gitVersion\": \"v1.36.0\"}" ;; *) echo nodes ;; esac'
stand_in "$home/.cargo/bin/cargo" <<'END'
[ "$1" = build ] || exit 0
mkdir -p target/release
echo "${BUILDER:-root}" >> target/release/builders
cat > target/release/coracle <<'PROGRAM'
#!/bin/bash
case $1 in up) printf 'cluster up in %s\nexport KUBECONFIG=/kubeconfig\n' "${CORACLE_NAME-}$CORACLE_DATA_DIR" ;; doctor) echo 'all is there' >&2 ;; esac
PROGRAM
chmod +x target/release/coracle
cp target/release/coracle target/release/coracle-agent
END
stand_in "$tree/scripts/images" <<< 'mkdir -p .cache/images && touch .cache/images/a.tar'
stand_in "$bin/dpkg-query" <<< 'sed -n "s/^\(build\|run\)=\"\(.*\)\"/\2/p" scripts/deps | tr " " "\n" | sed "s/$/ install ok installed/"'
up() { env -u CORACLE_BIN -u CORACLE_DATA_DIR -u CORACLE_NAME PATH="$bin:/usr/bin:/bin" "$@" "$tree/scripts/up" > "$work/said" 2>&1; }

# Whoever ran sudo builds, with the toolchain of theirs; root has none.
if command -v cargo > /dev/null && [[ $(command -v cargo) = /usr/bin/* || $(command -v cargo) = /bin/* ]]; then
    echo "(this machine has a cargo for everybody)"
elif up SUDO_USER=; then
    fail "it builds without a toolchain: $(cat "$work/said")"
else
    grep -qx 'a Rust toolchain is missing: https://rustup.rs' "$work/said" || fail "$(cat "$work/said")"
fi
up SUDO_USER=ann || fail "$(cat "$work/said")"
[ "$(cat "$tree/target/release/builders")" = ann ] || fail "built by $(cat "$tree/target/release/builders")"
grep -q '^==> building as ann ' "$work/said" || fail "$(cat "$work/said")"
# kubectl of the machine is in PATH already.
grep -qxF "export PATH=\$PATH:$tree/target/release" "$work/said" || fail "$(cat "$work/said")"
[ "$(tail -1 "$work/said")" = 'export KUBECONFIG=/kubeconfig' ] || fail "$(cat "$work/said")"
# A name in the environment selects the cluster.
up SUDO_USER=ann CORACLE_NAME=a CORACLE_DATA_DIR=/mnt/none || fail "$(cat "$work/said")"
grep -qx 'cluster up in /var/lib/coracle-clusters/a' "$work/said" || fail "$(cat "$work/said")"
grep -qx '  scripts/down --name a' "$work/said" || fail "$(cat "$work/said")"
if up SUDO_USER=ann CORACLE_NAME=../a; then fail "it takes any name"; fi

# On another system, in one line: what is needed.
ln -s /usr/bin/* /bin/* "$bin/" 2>/dev/null || true
rm -f "$bin/dpkg-query" "$bin/apt-get"
if SUDO_USER=ann PATH=$bin "$tree/scripts/deps" run > "$work/said" 2>&1; then fail "it succeeds without packages"; fi
[ "$(wc -l < "$work/said")" = 1 ] || fail "$(cat "$work/said")"
grep -q 'another system.*slirp4netns' "$work/said" || fail "$(cat "$work/said")"
echo "built by its user"
