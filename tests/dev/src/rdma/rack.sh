# A rack of two machines: alpha on the first, beta and gamma on the second, with a daemon each. rxe0 leads to the other
# machine, rxe1 nowhere; gamma takes no RDMA. The first machine runs the programs, the second is switched off by the last.
W=/run/work
cp $W/rack.key /run/rack.key
chmod 600 /run/rack.key
chown 0:0 /run/rack.key
[ $NUMBER = 1 ] || ip addr add 10.80.0.3/24 dev eth0
ip link add lone type dummy
ip addr add 10.9$NUMBER.0.1/24 dev lone
ip link set lone up
rdma link add rxe1 type rxe netdev lone
rack() { # FILE DEVICE SILENCE_MS
    cat >/run/$1 <<YAML
name: test
key_file: /run/rack.key
user: root
timeouts: {connect_ms: 30000, start_ms: 150000, silence_ms: $3}
hosts:
  - {name: alpha, address: 10.80.0.1, workers: 2, rdma: {device: $2}}
  - {name: beta, address: 10.80.0.2, workers: 2, rdma: {device: $2}}
  - {name: gamma, address: 10.80.0.3, workers: 2, fabric: tcp}
YAML
}
rack rack.yaml rxe0 45000
rack apart.yaml rxe1 20000
# Where nothing is to run, and four times this is waited for.
rack cut.yaml rxe1 8000
rack wrong.yaml mlx5_9 45000
start_daemon() {
    $W/gossamer-daemon --rack /run/rack.yaml --host $1 --cache /run/cache-$1 2>/run/daemon-$1 &
    for n in $(seq 1500); do
        grep -q listening /run/daemon-$1 && echo "the daemon listens: $1" && return
        sleep 0.2
    done
    cat /run/daemon-$1
}
if [ $NUMBER = 2 ]; then
    start_daemon beta
    start_daemon gamma
    wait
    exit
fi
start_daemon alpha
for n in $(seq 1500); do
    $W/gossamer-launch check --rack /run/rack.yaml >/run/said 2>&1
    [ $(grep -c 'verbs on rxe0 port 1' /run/said) = 3 ] && break
    sleep 0.2
done

passed=0
failed=0
why=
uptime() { read -r now _ </proc/uptime; echo $now; }
packets() { cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | { sum=0; while read -r n; do sum=$((sum + n)); done; echo $sum; }; }
# NAME: what has been said has to hold each line of standard input, and nothing may be wrong already.
verdict_on() {
    while read -r words; do
        grep -q -e "$words" /run/said || why="$why; it does not say: $words"
    done
    cat /run/said
    if [ -z "$why" ]; then
        echo "test rack::$1 ... ok"
        passed=$((passed + 1))
    else
        echo "wrong: ${why#; }"
        echo "test rack::$1 ... FAILED"
        failed=$((failed + 1))
    fi
    why=
}
# The processes of programs that are here.
left() {
    for exe in /proc/[0-9]*/exe; do
        case $(readlink $exe) in */test-roles | */wordcount) echo ${exe%/exe} ;; esac
    done
}
# STATUS RACK ARGUMENTS: runs a program, of which nothing may be left soon after. A status of `-` is any but 0.
program() {
    status=$1 file=$2
    shift 2
    start=$(uptime)
    before=$(packets)
    $W/gossamer-launch run --rack /run/$file --in-place "$@" >/run/said 2>&1 </dev/null
    got=$?
    end=$(uptime)
    sent=$(($(packets) - before))
    [ $got = $status ] || [ $status = - -a $got != 0 ] || why="$why; its status is $got, not $status"
    for n in $(seq 1500); do
        [ -n "$(left)" ] || break
        sleep 0.2
    done
    [ -z "$(left)" ] || why="$why; still there: $(left)"
    echo "$start $end $sent" | awk '{ printf "%.1f s, %d packets by RDMA\n", $2 - $1, $3 }'
    fault=$(sed -n 's/.*fault at \([0-9.]*\).*/\1/p' /run/said)
    [ -z "$fault" ] || echo "$end $fault" | awk '{ printf "%.1f s from the fault to the end\n", $1 - $2; exit $1 - $2 > 300 }' ||
        why="$why; it took too long to end"
}
verdict_on devices_are_listed <<'SAYS'
verbs on rxe0 port 1
verbs on rxe1 port 1
SAYS
program 0 rack.yaml --hosts alpha,beta --fabric verbs $W/wordcount --verify $W/text
[ $sent -gt 300 ] || why="$why; its bytes have not gone by RDMA"
verdict_on words_over_verbs <<'SAYS'
verified: equal
SAYS
program 0 rack.yaml --machines-per-host 2 --threads 6 $W/test-roles places
verdict_on every_fabric_in_one_program <<'SAYS'
by shm
by verbs
by tcp
SAYS
program 0 apart.yaml --hosts alpha,beta --fabric auto $W/wordcount --verify $W/text
verdict_on auto_takes_tcp_where_rdma_does_not_reach <<'SAYS'
verified: equal
do not reach one another, and take TCP
SAYS
program 70 cut.yaml --hosts alpha,beta --fabric verbs $W/test-roles places
verdict_on verbs_by_name_says_why_not <<'SAYS'
did not connect its queue pairs (is UDP port 4791 open
SAYS
program 70 wrong.yaml --hosts alpha,beta --fabric verbs $W/test-roles places
verdict_on verbs_by_name_says_which_device_is_not_there <<'SAYS'
there is no mlx5_9 on this host; it has rxe0 port 1: RoCE, active
SAYS
program 137 rack.yaml --hosts alpha,beta --fabric verbs $W/test-roles killed
verdict_on a_killed_machine_ends_the_program <<'SAYS'
machine 1
on beta
SIGKILL
SAYS
program - rack.yaml --hosts alpha,beta --fabric verbs $W/test-roles power_off
verdict_on a_host_switched_off_ends_the_program <<'SAYS'
machine 1
beta
SAYS
echo "test result: done. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
