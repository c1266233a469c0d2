#!/bin/bash
# The inside of a machine of scripts/vm: unpacks the payload, runs the suite, says how it ended, and turns the machine off.
# It is the machine's first process, or a unit of systemd (`machine.sh systemd`).
export PATH=/payload/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
word() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
MACHINE=$(word coracle.machine) BOOT=$(word coracle.boot)
export MACHINE BOOT
if [ "$1" != systemd ]; then
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/lock /dev/pts /dev/shm
    ln -s /proc/self/fd /dev/fd
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /dev/shm
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs tmpfs /tmp
    hostname "$MACHINE"
    ip link set lo up
fi
modprobe -a virtio_console virtio_net overlay br_netfilter 2>/dev/null
for _ in $(seq 100); do [ -e /dev/vport1p2 ] || [ -e /dev/vport0p2 ] || [ -e /dev/vport2p2 ] || { sleep 0.1; continue; }; break; done
out=$(echo /dev/vport*p1) rc=$(echo /dev/vport*p2)
mkdir -p /payload
tar -xf /dev/vdb -C /payload
cd /payload || exit 1
./suite > "$out" 2>&1
code=$?
[ -e /run/again ] && code=again
echo "$code" > "$rc"
# At once, and nothing is written out, as a power cut: what was acknowledged must be there after it. A suite that wants an
# orderly end does it itself.
echo o > /proc/sysrq-trigger
sleep 60
