#!/bin/bash
# Makes a machine of the Vagrantfile a server or a node: provision.sh server|node NAME ADDRESS SERVER
set -euo pipefail
role=$1 name=$2 address=$3 server=$4
hostnamectl set-hostname "$name" 2>/dev/null || hostname "$name"
grep -q "^127.0.1.1 $name" /etc/hosts || echo "127.0.1.1 $name" >> /etc/hosts

# The private network's link is the one without an address; it is configured here, so that every box will do.
if ! ip -br addr | grep -q "$address/"; then
    link=$(ip -br link | awk '$1 != "lo" {print $1}' | cut -d@ -f1 | while read -r link; do ip -4 -br addr show "$link" | grep -q '[0-9]/' || { echo "$link"; break; }; done)
    ip addr add "$address/24" dev "$link"
    ip link set "$link" up
    if [ -d /etc/systemd/network ] && systemctl -q is-active systemd-networkd; then
        printf '[Match]\nName=%s\n[Network]\nAddress=%s/24\n' "$link" "$address" > /etc/systemd/network/60-coracle.network
    elif [ -d /etc/network/interfaces.d ]; then
        printf 'auto %s\niface %s inet static\n  address %s/24\n' "$link" "$link" "$address" > /etc/network/interfaces.d/coracle
    fi
fi

need=()
for pair in runc:runc nft:nftables ip:iproute2 curl:curl; do command -v "${pair%%:*}" >/dev/null || need+=("${pair##*:}"); done
[ ${#need[@]} -eq 0 ] || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}"; }
rm -rf /opt/coracle-release
mkdir -p /opt/coracle-release
tar -xzf /tmp/coracle.tar.gz -C /opt/coracle-release --strip-components=1
case $role in
    server)
        /opt/coracle-release/install server --bind "0.0.0.0:6443" --advertise "$server"
        for _ in $(seq 120); do [ -s /var/lib/coracle/admin.kubeconfig ] && break; sleep 1; done
        ;;
    node)
        # Joining needs the server's token, which comes with the Vagrantfile's trigger.
        cat > /usr/local/sbin/coracle-join <<JOIN
#!/bin/sh
/opt/coracle-release/install agent --node-name $name --node-ip $address --server https://$server:6443 --token "\$1" || exit
pki=/var/lib/coracle/agent/pki
for _ in \$(seq 300); do
    curl -s --max-time 5 --cacert \$pki/ca.crt --cert \$pki/client.pem https://$server:6443/api/v1/nodes/$name | grep -q KubeletReady && exit
    sleep 1
done
echo "$name is not ready: journalctl -u coracle-agent" >&2
exit 1
JOIN
        chmod +x /usr/local/sbin/coracle-join
        ;;
esac
