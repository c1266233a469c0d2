# shellcheck shell=bash
# Sourced by scripts that take long: each step says what it does and how long it took; long ones show how far they are.

step_begun=
step() { step_done; step_begun=$SECONDS; printf '==> %s\n' "$*" >&2; }
step_done() {
    [ -z "$step_begun" ] || [ $((SECONDS - step_begun)) -lt 2 ] || printf '    %d s\n' $((SECONDS - step_begun)) >&2
    step_begun=
}

# bar DONE TOTAL WORDS: one line that is drawn over itself on a terminal; elsewhere a line at every tenth.
bar_shown=-1
bar() {
    local done=$1 total=$2 words=$3 full='##############################' empty='..............................' filled tenth
    [ "$total" -gt 0 ] || return 0
    if [ -t 2 ]; then
        filled=$((done * ${#full} / total))
        printf '\r    [%s%s] %3d %% %-40.40s' "${full:0:filled}" "${empty:filled}" $((done * 100 / total)) "$words" >&2
        [ "$done" -lt "$total" ] || printf '\r%80s\r' '' >&2
    else
        tenth=$((done * 10 / total))
        [ "$tenth" = "$bar_shown" ] || printf '    %3d %% %s\n' $((tenth * 10)) "$words" >&2
        bar_shown=$tenth
    fi
}

# packages NAME...: installs them with apt-get, with a bar.
packages() {
    local log kind percent rest
    log=$(mktemp)
    bar_shown=-1
    # Descriptor 3 carries `pmstatus:package:percent:text` and `dlstatus:number:percent:text`.
    if apt-get install -y -qq --no-install-recommends -o APT::Status-Fd=3 "$@" 3>&1 >"$log" 2>&1 \
        | while IFS=: read -r kind _ percent rest; do
            percent=${percent%.*}
            case $kind in
                dlstatus) bar $((${percent:-0} / 2)) 100 "$rest" ;;
                pmstatus) bar $((50 + ${percent:-0} / 2)) 100 "$rest" ;;
            esac
        done
    then
        rm -f "$log"
    else
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
}

# find_builder: sets `builder` to the words before a command that uses cargo. With sudo it is the user who ran it, if the tree is theirs:
# root has another PATH, and what root builds only root can build again. Fails where there is no cargo.
builder=()
find_builder() {
    local home
    builder=()
    if [ "$(id -u)" = 0 ] && [ "${SUDO_USER:-root}" != root ]; then
        home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
        builder=(sudo -H -u "$SUDO_USER" env "PATH=${home:+$home/.cargo/bin:}$PATH")
        if "${builder[@]}" test -w "$PWD" && "${builder[@]}" sh -c 'command -v cargo' >/dev/null; then return 0; fi
        builder=()
    fi
    command -v cargo >/dev/null
}

# build_units CARGO-ARGUMENT...: what a build with these arguments compiles, `PACKAGE@VERSION[/PROGRAM|/build] SECONDS` per line.
build_units() {
    local tree=() programs=() program manifest quiet=(-q)
    [ ! -t 2 ] || quiet=()
    while [ $# -gt 0 ]; do
        case $1 in
            --bin) programs+=("$2"); shift ;;
            --bin=*) programs+=("${1#*=}") ;;
            --target | -p | --package) tree+=("$1" "$2"); shift ;;
            --locked | --offline | --workspace | --target=* | --package=*) tree+=("$1") ;;
        esac
        shift
    done
    for program in "${programs[@]}"; do
        for manifest in */Cargo.toml */*/Cargo.toml; do
            if [ -e "${manifest%/*}/src/bin/$program.rs" ] || grep -qx "name = \"$program\"" "$manifest"; then
                tree+=(-p "$(sed -n '/^name = /{s/.*"\(.*\)"/\1/p;q}' "$manifest")")
            fi
        done
    done
    cargo tree "${quiet[@]}" "${tree[@]}" -e normal,build --prefix none -f '{p}' | awk -v programs=" ${programs[*]} " '
        NR == FNR && /^#/ { next }
        NR == FNR && split($1, part, "/") == 2 { more[part[1]] = more[part[1]] " " part[2] }
        NR == FNR { seconds[$1] = $2; next }
        NF < 2 || $1 "@" $2 in seen { next }
        {
            seen[$1 "@" $2]
            unit = $1 "@" substr($2, 2)
            print unit, $1 in seconds ? seconds[$1] : 1
            count = split(more[$1], parts, " ")
            for (i = 1; i <= count; i++)
                if (parts[i] == "build" || programs == "  " || index(programs, " " parts[i] " "))
                    print unit "/" parts[i], seconds[$1 "/" parts[i]]
        }' scripts/build_times -
}

# build_estimate CARGO-ARGUMENT... <UNITS: says how long a build takes, when the target directory lacks much of it.
build_estimate() {
    local directory=${CARGO_TARGET_DIR:-target} profile=debug platform='' cores chain
    while [ $# -gt 0 ]; do
        case $1 in
            --release) profile=release ;;
            --target) platform=$2; shift ;;
            --target=*) platform=${1#*=} ;;
        esac
        shift
    done
    cores=$(nproc)
    chain=$(sed -n 's/^chain //p' scripts/build_times)
    # Directories of what was compiled before are PACKAGE-HASH.
    {
        find "$directory${platform:+/$platform}/$profile/.fingerprint" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sed 's/-[0-9a-f]*$//' || true
        echo
        cat
    } | awk -v cores="$cores" -v chain="$chain" '
        NF == 0 { units = 1; next }
        !units { built[$1]; next }
        { split($1, part, "@"); all += $2 }
        !(part[1] in built) { left += $2 }
        END {
            if (left < 60) exit
            wall = left / cores
            if (wall < chain * left / all) wall = chain * left / all
            printf "    usually %d minutes of CPU time, about %d on this machine\n", left / 60 + 0.5, wall / 60 + 0.5
        }' >&2
}

# build_progress UNITS: reads what cargo writes as JSON and as text. Shows how much is done and what is being compiled; warnings,
# errors and everything else appear as cargo writes them.
build_progress() {
    local line id unit weight name total=0 done=0 words clear='' now=() kept=()
    local colour=$'(\e\\[[0-9;]*m)*'
    local artifact='"package_id":"([^"]*)".*"target":\{"kind":\["([^"]*)".*"crate_types":\[[^]]*\],"name":"([^"]*)"'
    # The seconds of every unit, and how many programs of a package are to come.
    local -A seconds=() pending=()
    while read -r unit weight; do
        # Nothing is known of the build when cargo cannot list its packages: then it fails and says why.
        [ -n "$unit" ] || continue
        seconds[$unit]=$weight
        total=$((total + weight))
        case $unit in */build) ;; */*) pending[${unit%/*}]=$((${pending[${unit%/*}]:-0} + 1)) ;; esac
    done <<< "$1"
    [ ! -t 2 ] || clear=$'\r\e[K'
    bar_shown=0
    while IFS= read -r line; do
        case $line in
            '{"reason":"compiler-artifact"'*)
                [[ $line =~ $artifact ]] || continue
                id=${BASH_REMATCH[1]} name=${BASH_REMATCH[3]}
                case ${BASH_REMATCH[2]} in custom-build) continue ;; bin) ;; *) name= ;; esac
                # path+file:///…/NAME#VERSION or …#NAME@VERSION
                unit=${id##*#}
                id=${id%#*}
                [[ $unit == *@* ]] || unit=${id##*/}@$unit
                id=$unit
                [ -z "$name" ] || pending[$id]=$((${pending[$id]:-0} - 1))
                unit=$id${name:+/$name}
                ;;
            '{"reason":"build-script-executed"'*)
                [[ $line =~ \"package_id\":\"[^\"]*\#([^\"]*)\" ]] || continue
                id=${BASH_REMATCH[1]} unit=$id/build
                ;;
            '{"reason":"build-finished","success":true'*)
                [ "$done" = 0 ] || bar "$total" "$total" ''
                continue
                ;;
            '{"reason":"'*) continue ;;
            *)
                if [[ $line =~ ^$colour\ *Compiling$colour\ ([^ ]+)\  ]]; then
                    now+=("${BASH_REMATCH[3]}")
                elif [[ ! $line =~ ^$colour\ *Finished$colour\  ]]; then
                    printf '%s%s\n' "$clear" "$line" >&2
                fi
                unit=
                ;;
        esac
        if [ -n "$unit" ]; then
            weight=${seconds[$unit]:-0}
            seconds[$unit]=0
            # What was there already is no part of the work.
            if [[ $line == *'"fresh":true'* || " ${now[*]} " != *" ${id%@*} "* ]]; then
                total=$((total - weight))
            else
                done=$((done + weight))
            fi
            # A package is compiled when its library and its programs are.
            if [[ $unit != */build && ${pending[$id]:-0} -le 0 ]]; then
                kept=()
                for name in "${now[@]}"; do [ "$name" = "${id%@*}" ] || kept+=("$name"); done
                now=("${kept[@]}")
            fi
        fi
        printf -v words '%s, ' "${now[@]:0:3}"
        # It is not all before cargo says so: what is compiled twice, for build scripts and for programs, counts once.
        [ ${#now[@]} = 0 ] || bar $((done < total ? done : total - 1)) "$total" "${words%, }"
    done
    printf '%s' "$clear" >&2
}

# compile CARGO-ARGUMENT...: cargo build with a bar by time, for which scripts/build_times says how long the slow units take.
compile() (
    set -o pipefail
    units=$(build_units "$@") || units=
    [ -z "$units" ] || build_estimate "$@" <<< "$units"
    [ ! -t 2 ] || export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-always}"
    CARGO_TERM_PROGRESS_WHEN=never cargo build "$@" --message-format=json-render-diagnostics 2>&1 | build_progress "$units"
)
