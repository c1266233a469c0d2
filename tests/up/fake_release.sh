# shellcheck shell=bash
# fake_release DIR: a release as scripts/package makes it, with other programs. TREE is the tree.
fake_release() {
    local program plugin file
    mkdir -p "$1"/{bin,cni,man,completions,systemd,etc,docs}
    for program in coracle coracle-agent coracle-keeper; do echo "$program" > "$1/bin/$program"; done
    for plugin in bridge host-local loopback portmap; do echo "$plugin" > "$1/cni/$plugin"; done
    echo page > "$1/man/coracle.1"
    for program in coracle coracle-agent; do
        for file in "$program.bash" "_$program" "$program.fish"; do echo "$file" > "$1/completions/$file"; done
    done
    cp "$TREE"/etc/systemd/*.service "$1/systemd/"
    printf '#advertise:\n' > "$1/etc/server.yaml"
    printf '#kubeconfig:\n#cniCacheDir: /var/lib/cni\n#podLogDir: /var/log/pods\n' > "$1/etc/agent.yaml"
    cp "$TREE"/{LICENSE,README.md,CHANGELOG.md} "$TREE"/scripts/{install,end-pods} "$1/"
    echo '{}' > "$1/sbom.cdx.json"
    echo text > "$1/docs/README.md"
    seal_release "$1"
}

# seal_release DIR: the checksums of what is there now.
seal_release() { (cd "$1" && rm -f SHA256SUMS && find . -type f -print0 | xargs -0 sha256sum > "$1.sums" && mv "$1.sums" SHA256SUMS); }
