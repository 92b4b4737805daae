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
# Under load 25 requests of 32 bytes or more share a batch, which is one write.
load() {
    before=$(packets)
    /run/work/gossamer-launch run --start-timeout 200 --local 2 --threads 4 --fabric verbs /run/work/test-roles load >/run/said 2>&1
    status=$?
    cat /run/said
    sent=$(($(packets) - before))
    if [ $status = 0 ] && awk -v sent=$sent '/ requests to other machines/ {
            for (n = 1; n < NF; n++) if ($(n + 1) == "requests") requests = $n; else if ($(n + 1) == "batches:") batches = $n
            printf "%d batches and %d packets for 1,000 requests\n", 1000 * batches / requests, 1000 * sent / requests
        } END { exit !(batches > 0 && requests >= 25 * batches) }' /run/said; then
        echo "test programs::requests_share_writes ... ok"
        passed=$((passed + 1))
    else
        echo "test programs::requests_share_writes ... FAILED"
        failed=$((failed + 1))
    fi
}
load
program words_over_verbs --local 2 --threads 4 --fabric verbs
program words_over_verbs_and_shared_memory --local 4 --pretend-hosts 2 --threads 4 --fabric auto
echo "test result: done. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
