# shellcheck shell=bash
# Sourced by scripts that make packages of an unpacked release: its name, and where its files go on a machine.

# parse_release DIR: sets `version` and `machine` from the name coracle-VERSION-linux-MACHINE. They become parts of paths, and of
# files that packagers expand: nothing but a version by SemVer is accepted.
parse_release() {
    local LC_ALL=C
    local word='[0-9A-Za-z-]+'
    local words="$word(\\.$word)*"
    [[ ${1##*/} =~ ^coracle-([0-9]+\.[0-9]+\.[0-9]+(-$words)?(\+$words)?)-linux-([a-z0-9_]+)$ ]] ||
        { echo "$0: $1 is no release: its name is not coracle-VERSION-linux-ARCH" >&2; exit 1; }
    # shellcheck disable=SC2034 # of those who source this
    version=${BASH_REMATCH[1]} machine=${BASH_REMATCH[-1]}
}

# maintainer: name and address, `authors` of Cargo.toml.
maintainer() { sed -n 's/^authors = \["\(.*\)"\]$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml" | grep .; }

# lay_out RELEASE ROOT ZSH: puts what every package has below ROOT. ZSH is where completions of zsh are, such as zsh/vendor-completions.
lay_out() {
    local release=$1 root=$2 zsh=$3 plugin unit page program
    mkdir -p "$root"/usr/{bin,lib/{coracle/cni,systemd/system},share/{doc/coracle,man/man1,bash-completion/completions,"$zsh",fish/vendor_completions.d}} "$root/etc/coracle"
    install -m 755 "$release"/bin/* "$root/usr/bin/"
    for plugin in kubectl-trace kubectl-why kubectl-coracle_ui; do ln -s coracle "$root/usr/bin/$plugin"; done
    install -m 755 "$release"/cni/* "$root/usr/lib/coracle/cni/"
    install -m 755 "$release/end-pods" "$root/usr/lib/coracle/end-pods"
    for unit in "$release"/systemd/*.service; do
        sed 's|/usr/local/bin/|/usr/bin/|' "$unit" > "$root/usr/lib/systemd/system/${unit##*/}"
    done
    for page in "$release"/man/*; do gzip -9nc "$page" > "$root/usr/share/man/man1/${page##*/}.gz"; done
    for program in coracle coracle-agent; do
        install -m 644 "$release/completions/$program.bash" "$root/usr/share/bash-completion/completions/$program"
        install -m 644 "$release/completions/_$program" "$root/usr/share/$zsh/_$program"
        install -m 644 "$release/completions/$program.fish" "$root/usr/share/fish/vendor_completions.d/$program.fish"
    done
    install -m 600 "$release"/etc/{server,agent}.yaml "$root/etc/coracle/"
    # As `install agent` sets them: the identity that `coracle-agent join` writes, and a directory that no other engine uses.
    sed -i 's|^#kubeconfig:.*|kubeconfig: /var/lib/coracle/agent/kubeconfig|; s|^#cniCacheDir:.*|cniCacheDir: /var/lib/coracle/cni|' "$root/etc/coracle/agent.yaml"
    grep -q '^kubeconfig:' "$root/etc/coracle/agent.yaml" || { echo "$0: agent.yaml has no option kubeconfig" >&2; exit 1; }
    install -m 644 "$release/README.md" "$release/sbom.cdx.json" "$root/usr/share/doc/coracle/"
    cp -r "$release/docs" "$root/usr/share/doc/coracle/"
}

# needed_glibc ROOT: the oldest C library that has what the programs use; nothing if none of them is linked with it. readelf reads programs
# of every architecture.
needed_glibc() {
    local program
    for program in "$1"/usr/bin/*; do readelf -VW "$program" 2>/dev/null || true; done | sed -n 's/.*Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -Vu | tail -1
}

# settle ROOT: permissions and times that do not depend on who makes the package, and when.
settle() {
    chmod -R u+rwX,go+rX,go-w "$1"
    chmod 600 "$1"/etc/coracle/*.yaml
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}
