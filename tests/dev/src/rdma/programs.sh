# Whole programs over RDMA: each has to be right, and its bytes to go through the devices.
packets() { cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | { sum=0; while read -r n; do sum=$((sum + n)); done; echo $sum; }; }
passed=0
failed=0
program() {
    name=$1
    shift
    before=$(packets)
    if /run/work/gossamer-launch run --start-timeout 200 "$@" /run/work/wordcount --verify /run/work/text >/run/said 2>&1 &&
        grep -q 'verified: equal' /run/said && [ $(($(packets) - before)) -gt 300 ]; then
        echo "test programs::$name ... ok"
        passed=$((passed + 1))
    else
        echo "test programs::$name ... FAILED"
        failed=$((failed + 1))
    fi
    cat /run/said
    echo "$(($(packets) - before)) packets"
}
program words_over_verbs --local 2 --threads 4 --fabric verbs
program words_over_verbs_and_shared_memory --local 4 --pretend-hosts 2 --threads 4 --fabric auto
echo "test result: done. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
