# shellcheck shell=bash
# look: everything a cluster could leave: processes, namespaces, links, routes, rules, mounts, control groups, files. `hub` is the part of the
# names of its control groups.
look() {
    echo "# processes"; for pid in /proc/[0-9]*; do [ "$pid" = /proc/$$ ] || [ "$pid" = /proc/$BASHPID ] || tr '\0' ' ' < "$pid/cmdline" 2>/dev/null | grep -v '^$' || true; done
    echo "# links"; ip -br link
    echo "# routes"; ip route show table all; ip rule
    echo "# rules"; nft list ruleset
    echo "# mounts"; cat /proc/self/mounts
    echo "# control groups"; find /sys/fs/cgroup -maxdepth 3 -type d -name "coracle-${hub:?}-*" 2>/dev/null || true
    echo "# files"; find /run /mnt /var/log /etc/cni /opt/cni /var/lib/cni -xdev 2>/dev/null | sort || true
}
