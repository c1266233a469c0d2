# shellcheck shell=bash
# fake_build DIR: a build for scripts/package, of programs that print their version and write their manual. coracle-keeper is linked with
# the C library, the others are scripts. CC compiles.
fake_build() {
    local program plugin
    mkdir -p "$1"
    for program in coracle coracle-agent; do
        cat > "$1/$program" <<'PROGRAM'
#!/bin/bash
program=${0##*/}
case $1 in
    --version) echo "$program 0.1.0" ;;
    version) printf '{\n  "program": "%s",\n  "commit": "5fc2e19",\n  "platform": "linux/amd64"\n}\n' "$program" ;;
    manual)
        mkdir -p "$2"/{man,completions,etc}
        echo "page of $program" > "$2/man/$program.1"
        for file in "$program.bash" "_$program" "$program.fish"; do echo "$file" > "$2/completions/$file"; done
        case $program in
            coracle) printf '#advertise:\n' > "$2/etc/server.yaml" ;;
            *) printf '#kubeconfig:\n#cniCacheDir: /var/lib/cni\n#podLogDir: /var/log/pods\n' > "$2/etc/agent.yaml" ;;
        esac
        ;;
esac
PROGRAM
    done
    echo 'int main(void) { return 0; }' | "${CC:-gcc}" -x c -o "$1/coracle-keeper" -
    for plugin in coracle-runtime bandwidth bridge host-local loopback portmap; do echo "$plugin" > "$1/$plugin"; done
    chmod 755 "$1"/*
}
