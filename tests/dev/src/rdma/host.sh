# One device on the network that joins two machines.
ip -batch - <<IP
link set lo up
link set eth0 mtu 9000
addr add 10.80.0.$NUMBER/24 dev eth0
link set eth0 up
IP
rdma link add rxe0 type rxe netdev eth0
