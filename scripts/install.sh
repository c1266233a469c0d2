#!/bin/sh
# Installs a release of Coracle from its tarball: checks it, unpacks it, and runs its install.
#   sh install.sh [--key FILE|KEY] [--sha256 SUM] TARBALL server|agent|upgrade [--option value…]
# TARBALL is coracle-VERSION-linux-ARCH.tar.gz, or an https:// URL of it. Its checksum is that of --sha256, else of TARBALL.sha256 or SHA256SUMS
# beside it. With --key, TARBALL.minisig must be a signature by that minisign key (package minisign). What follows TARBALL is for the
# release's own install: `server --advertise 10.0.0.1`, `agent --server URL --token TOKEN`, `upgrade`, `uninstall`.
set -eu
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
refuse() { echo "install.sh: $1" >&2; exit 1; }
key='' sum=''
while [ $# -gt 0 ]; do
    case $1 in
        --key) [ $# -ge 2 ] || usage; key=$2; shift 2 ;;
        --sha256) [ $# -ge 2 ] || usage; sum=$2; shift 2 ;;
        -*) usage ;;
        *) break ;;
    esac
done
[ $# -ge 2 ] || usage
from=$1
shift
case $1 in server | agent | upgrade | uninstall) ;; *) usage ;; esac
[ "$(id -u)" = 0 ] || [ -n "${ROOT:-}" ] || refuse "it writes to /usr/local and /etc, which needs root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch URL FILE
fetch() { curl -fsSL --proto '=https' --proto-redir '=https' --max-time 600 -o "$2" "$1"; }
case $from in
    https://*)
        command -v curl >/dev/null || refuse "curl is missing (apt-get install curl)"
        tarball=$work/${from##*/}
        fetch "$from" "$tarball" || refuse "$from cannot be fetched"
        fetch "$from.sha256" "$tarball.sha256" 2>/dev/null || rm -f "$tarball.sha256"
        [ -z "$key" ] || fetch "$from.minisig" "$tarball.minisig" || refuse "$from.minisig cannot be fetched"
        ;;
    *://*) refuse "$from: only https:// URLs and files are taken" ;;
    *)
        tarball=$from
        [ -f "$tarball" ] || refuse "$from: there is no such file"
        ;;
esac

file=${tarball##*/} dir=$(dirname "$tarball")
if [ -z "$sum" ] && [ -f "$tarball.sha256" ]; then sum=$(cut -d' ' -f1 "$tarball.sha256"); fi
if [ -z "$sum" ] && [ -f "$dir/SHA256SUMS" ]; then sum=$(awk -v file="$file" '$2 == file {print $1}' "$dir/SHA256SUMS"); fi
[ -n "$sum" ] || [ -n "$key" ] || refuse "there is no checksum of $from: neither $file.sha256 nor SHA256SUMS is beside it; --sha256 gives it"
if [ -n "$sum" ] && [ "$(sha256sum "$tarball" | cut -d' ' -f1)" != "$sum" ]; then
    refuse "$from is damaged: its checksum is not $sum"
fi
if [ -n "$key" ]; then
    command -v minisign >/dev/null || refuse "minisign is missing (apt-get install minisign)"
    [ -f "$tarball.minisig" ] || refuse "$from has no signature: $file.minisig is not beside it"
    if [ -f "$key" ]; then set -- -p "$key" "$@"; else set -- -P "$key" "$@"; fi
    minisign -V -q "$1" "$2" -m "$tarball" >&2 || refuse "$from is not signed with that key"
    shift 2
fi

# One directory, and nothing outside of it.
tar -tzf "$tarball" > "$work/names" 2>/dev/null || refuse "$from is no tarball of a release"
top=$(sed 's|/.*||' "$work/names" | sort -u)
case $top in coracle-*) ;; *) refuse "$from is no tarball of a release" ;; esac
[ "$(printf '%s\n' "$top" | wc -l)" = 1 ] || refuse "$from is no tarball of a release"
if grep -q '\(^\|/\)\.\.\(/\|$\)' "$work/names"; then refuse "$from is no tarball of a release"; fi
machine=$(uname -m)
case $top in *-linux-"$machine") ;; *) refuse "$from is for another machine: this one is linux-$machine" ;; esac
mkdir "$work/release"
tar -xzf "$tarball" -C "$work/release" --no-same-owner || refuse "$from cannot be unpacked into $work"
"$work/release/$top/install" "$@"
