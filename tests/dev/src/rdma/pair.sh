# Two devices at the two ends of a pair of interfaces. Both addresses are this machine's own: policy
# routing makes the packets cross the pair all the same.
ip -batch - <<'IP'
link set lo up
link add va mtu 9000 type veth peer name vb mtu 9000
addr add 10.79.0.1/24 dev va
addr add 10.79.0.2/24 dev vb
link set va up
link set vb up
route add 10.79.0.2/32 dev va src 10.79.0.1 table 102
route add 10.79.0.1/32 dev vb src 10.79.0.2 table 101
rule add pref 100 iif lo to 10.79.0.2 lookup 102
rule add pref 101 iif lo to 10.79.0.1 lookup 101
rule add pref 200 lookup local
rule del pref 0
IP
for i in all va vb lo; do
    echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
done
rdma link add rxeA type rxe netdev va
rdma link add rxeB type rxe netdev vb
