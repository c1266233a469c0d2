#!/usr/bin/env bash
# Which names of releases scripts that make packages accept, and what they take from them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=scripts/layout.sh
. scripts/layout.sh
code=0
fail() { echo "tests/scripts/layout_test.sh: $*" >&2; code=1; }
# parsed NAME: version and machine, or nothing.
parsed() { (parse_release "$1" 2>/dev/null && echo "$version $machine"); }
while read -r name wanted; do
    [ "$(parsed "$name")" = "$wanted" ] || fail "$name is read as '$(parsed "$name")', not as '$wanted'"
done <<'NAMES'
coracle-0.1.0-linux-x86_64 0.1.0 x86_64
/tmp/dir/coracle-0.1.0-rc.1-linux-aarch64 0.1.0-rc.1 aarch64
coracle-1.20.300-rc.1-x+5fc2e19.2-linux-riscv64 1.20.300-rc.1-x+5fc2e19.2 riscv64
NAMES
# shellcheck disable=SC2016 # these names have dollar signs
for name in coracle-1-linux-x86_64 coracle-0.1-linux-x86_64 coracle-0.1.0- coracle-0.1.0-linux- 'coracle-0.1.0 -linux-x86_64' \
    'coracle-0.1.0-%{lua:x}-linux-x86_64' 'coracle-0.1.0-$(id)-linux-x86_64' 'coracle-0.1.0;id-linux-x86_64' coracle-0.1.0-..-linux-x86_64 \
    $'coracle-0.1.0\nProvides: x-linux-x86_64' coracle-0.1.0-é-linux-x86_64 xcoracle-0.1.0-linux-x86_64 coracle-0.1.0-linux-X86; do
    [ -z "$(parsed "$name")" ] || fail "$name is accepted as '$(parsed "$name")'"
    said=$(scripts/oci-image "/nowhere/$name" /nowhere/out 2>&1)
    [[ $said == *"is no release"* ]] || fail "$name is a release for scripts/oci-image: $said"
done
exit "$code"
