# Functions that the scripts of this folder share. `cargo dev starters` runs each with FOLDER (its own, empty), PROGRAMS (where
# test-roles, test-wordcount and test-launch are) and this file before it. A check prints "ok NAME" or "FAILED NAME".
# Processes are ended by their own ids.

export RUST_BACKTRACE=0 LC_ALL=C
ROLES=$PROGRAMS/test-roles WORDCOUNT=$PROGRAMS/test-wordcount LAUNCH=$PROGRAMS/test-launch

skip() { echo "SKIPPED: $*"; exit 77; }
need() { command -v "$1" >/dev/null || skip "no $1: on Debian, apt-get install $2"; }
check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@"; then echo "ok $name"; else
        echo "FAILED $name: $*"
        sed 's/^/    /' "$FOLDER"/last.* 2>/dev/null | head -60
    fi
}
# Runs to the end: output in last.out, last.err, status in last.status.
run() {
    timeout --kill-after 5 300 "$@" >"$FOLDER/last.out" 2>"$FOLDER/last.err" </dev/null
    echo $? >"$FOLDER/last.status"
}
status() { [ "$(cat "$FOLDER/last.status")" = "$1" ]; }
said() { grep -qF -- "$1" "$FOLDER/last.out" "$FOLDER/last.err"; }
# The same in the background; PID is the starter's.
begin() {
    rm -f "$FOLDER"/last.*
    (run "$@") &
    PID=$!
    for _ in $(seq 1500); do
        grep -qs '^works' "$FOLDER/last.out" && return 0
        sleep 0.1
    done
    echo "FAILED: $* did not begin"
    return 1
}
machine() { sed -n "s/^machine $1 is process //p" "$FOLDER/last.out"; }
# Whether a process lives; one that nobody has collected yet does not.
lives() { [ -n "$1" ] && grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
# Whether all machines are gone, after the starter has ended.
gone() {
    wait "$PID"
    lives "$(machine 0)" || lives "$(machine 1)" || return 0
    return 1
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# The words of these files, as `gossamer-launch run --local 2` counts them.
words() {
    cp "$PROGRAMS/../../README.md" "$FOLDER/text" 2>/dev/null || cp README.md "$FOLDER/text"
    "$LAUNCH" run --local 2 --no-prefix "$WORDCOUNT" "$FOLDER/text" 2>/dev/null </dev/null | list >"$FOLDER/wanted"
    [ "$(wc -l <"$FOLDER/wanted")" -gt 5 ]
}
# The words with their counts, without times and sums.
list() { grep -E '^ *[0-9,]+  [^ ]+$'; }
same_words() { list <"$FOLDER/last.out" | cmp -s - "$FOLDER/wanted"; }

# The faults, under a starter that takes `PROGRAM ARGUMENTS` behind its words.
faults() { # NAME STARTER...
    local name=$1 start
    shift
    begin "$@" "$ROLES" wait && start=$(milliseconds) && kill -9 "$(machine 1)"
    check "$name: kill -9 ends all" gone
    echo "$name: kill -9 to all gone: $(($(milliseconds) - start)) ms"
    check "$name: kill -9 is no success" eval '! status 0'
    begin "$@" "$ROLES" wait && start=$(milliseconds) && kill -STOP "$(machine 1)"
    check "$name: SIGSTOP ends all" gone
    echo "$name: SIGSTOP to all gone: $(($(milliseconds) - start)) ms"
    check "$name: who stood still is named" said 'machine 1 (pid'
    check "$name: SIGSTOP is no success" eval '! status 0'
}

# One of three machines is killed, where the program outlives it; the starter ends with STATUS.
outlives() { # NAME STATUS STARTER...
    local name=$1 status=$2
    shift 2
    GOSSAMER_SURVIVES=1 begin "$@" "$ROLES" goes-on && kill -9 "$(machine 1)"
    wait "$PID"
    check "$name: a program goes on without a machine" said 'the others go on without machine 1'
    check "$name: and comes to its end" said 'all others have counted on'
    check "$name: with the starter's status of such a run" status "$status"
}

# The process manager of the host is killed: NAME, what finds its process by that of the starter, STARTER...
orphans() {
    local name=$1 manager=$2
    shift 2
    begin "$@" "$ROLES" wait && kill -9 "$("$manager" "$PID")"
    check "$name: no machine outlives the process manager" dead
    begin "$@" sh -c '"$0" wait; sleep 60' "$ROLES" && kill -9 "$("$manager" "$PID")"
    check "$name: nor within a script" dead
}
# Whether both machines are gone, soon, whatever has started them.
dead() {
    for _ in $(seq 200); do
        lives "$(machine 0)" || lives "$(machine 1)" || return 0
        sleep 0.1
    done
    return 1
}
# The process of this program below a process.
below() { # PROCESS PROGRAM
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        case $(tr '\0' ' ' <"/proc/$child/cmdline") in "$2"*) echo "$child" && return ;; esac
        below "$child" "$2" && return
    done
    return 1
}

# Programs that follow one another in a script.
several() { # NAME STARTER...
    local name=$1
    shift
    run "$@" sh -c 'for _ in 1 2 3; do "$0" starter || exit; done' "$ROLES"
    check "$name: each program of a script runs" status 0
    check "$name: each as all machines" [ "$(grep -c '^3 machines, started by' "$FOLDER/last.out")" = 3 ]
}

# 128 machines, started and ended (O9: they meet within 5 s where the host has nothing else to do).
many() { # NAME STARTER...
    local name=$1 start
    shift
    start=$(milliseconds)
    run "$@" "$ROLES" starter
    echo "$name: 128 processes, start to end: $(($(milliseconds) - start)) ms"
    check "$name: 128 processes meet" said '128 machines, started by '
}

# All machines of a program are seen at the address that machine 0 says.
watched() { # NAME STARTER...
    local name=$1 url
    shift
    GOSSAMER_VIEW=127.0.0.1:0 begin "$@" "$ROLES" wait
    url=$(grep -o 'http://[^ ]*' "$FOLDER/last.err" | head -1)
    "$LAUNCH" top --once --json "$url" >"$FOLDER/last.top" 2>&1
    check "$name: its view shows both machines" eval 'grep -qF "\"m0w0\"" "$FOLDER/last.top" && grep -qF "\"m1w0\"" "$FOLDER/last.top"'
    kill -TERM "$(machine 0)"
    check "$name: SIGTERM ends all" gone
}

# Start to end of 4 processes, beside an MPI hello: medians of 5, in turn.
hello() { # NAME COMPILER STARTER...
    local name=$1 compiler=$2 ours=() theirs=() start
    shift 2
    cat >"$FOLDER/hello.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d processes\n", size);
    MPI_Finalize();
    return 0;
}
C
    if ! "$compiler" -O2 -o "$FOLDER/hello" "$FOLDER/hello.c" 2>/dev/null; then
        echo "$name: no MPI hello: no $compiler"
        return
    fi
    for _ in 1 2 3 4 5; do
        start=$(milliseconds)
        run "$@" "$ROLES" starter
        ours+=($(($(milliseconds) - start)))
        start=$(milliseconds)
        run "$@" "$FOLDER/hello"
        theirs+=($(($(milliseconds) - start)))
    done
    median() { printf '%s\n' "$@" | sort -n | sed -n 3p; }
    echo "$name: 4 processes, start to end: $(median "${ours[@]}") ms, MPI hello $(median "${theirs[@]}") ms"
}
