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
    local done=$1 total=$2 words=$3 width=30 filled tenth
    [ "$total" -gt 0 ] || return 0
    if [ -t 2 ]; then
        filled=$((done * width / total))
        printf '\r    [%s%s] %3d %% %-40.40s' "$(printf '%*s' "$filled" '' | tr ' ' '#')" "$(printf '%*s' $((width - filled)) '' | tr ' ' .)" $((done * 100 / total)) "$words" >&2
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

# compile CARGO-ARGUMENT...: cargo draws its own bar on a terminal; elsewhere one line at every tenth.
compile() {
    if [ -t 2 ]; then
        cargo build "$@"
        return
    fi
    local log total=0 done=0 line code
    log=$(mktemp)
    bar_shown=-1
    code=0
    cargo build "$@" 2>&1 | tee "$log" | while read -r line; do
        case $line in
            Compiling*)
                # An upper bound: packages that are built already are not counted again, and the bar ends early.
                [ "$total" -gt 0 ] || total=$(cargo tree --locked -e normal,build --prefix none -f '{p}' 2>/dev/null | sed 's/ (\*)$//' | sort -u | wc -l)
                done=$((done + 1))
                [ "$done" -gt "$total" ] || bar "$done" "$total" "${line#Compiling }"
                ;;
            warning*|error*) printf '    %s\n' "$line" >&2 ;;
        esac
    done || code=1
    [ "$code" = 0 ] || tail -40 "$log" >&2
    rm -f "$log"
    return "$code"
}
