# Slurm: a controller and two slurmd on this host, by PMI-1; all in $FOLDER, at ports of their own.
[ "$(id -u)" = 0 ] || skip 'not root: slurmd wants to be'
need munged munge
for tool in slurmctld slurmd srun sbatch; do need $tool slurm-wlm; done
cd "$FOLDER" && mkdir spool a b && chmod 755 "$FOLDER" || exit
head -c 1024 /dev/urandom >munge.key && chmod 400 munge.key
end() {
    for pid in slurmd-a slurmd-b slurmctld munged; do
        [ -s $pid.pid ] && kill "$(cat $pid.pid)" 2>/dev/null
    done
    true
}
trap end EXIT
# --force: the folders above this one may be open to all.
munged --force --key-file="$FOLDER/munge.key" --socket="$FOLDER/munge.sock" --pid-file="$FOLDER/munged.pid" \
    --log-file="$FOLDER/munge.log" --seed-file="$FOLDER/munge.seed" >munged.out 2>&1 || skip "munged does not start: $(tail -1 munged.out)"
port=$((20000 + $$ % 9000))
cat >slurm.conf <<C
ClusterName=gossamer
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$FOLDER/munge.sock
SlurmUser=root
SlurmctldPort=$port
SlurmctldPidFile=$FOLDER/slurmctld.pid
SlurmctldLogFile=$FOLDER/slurmctld.log
StateSaveLocation=$FOLDER/spool
SlurmdSpoolDir=$FOLDER/%n
SlurmdPidFile=$FOLDER/slurmd-%n.pid
SlurmdLogFile=$FOLDER/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
KillWait=2
NodeName=a NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=b NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=p Nodes=a,b Default=YES State=UP
C
export SLURM_CONF=$FOLDER/slurm.conf
slurmctld -f slurm.conf >>start.out 2>&1 && slurmd -N a -f slurm.conf >>start.out 2>&1 && slurmd -N b -f slurm.conf >>start.out 2>&1 ||
    skip "Slurm does not start: $(tail -1 start.out)"
for _ in $(seq 600); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.25
done
[ "$(sinfo -h -t idle -o %D)" = 2 ] || skip "Slurm's two nodes do not come up: $(sinfo -h | tr '\n' ' ')"

check 'slurm: counts words' words
run srun --mpi=pmi2 -N2 "$WORDCOUNT" "$FOLDER/text"
check 'slurm: the words of --local 2' same_words
run srun --mpi=pmi2 -N2 "$ROLES" starter
check 'slurm: is named' said '2 machines, started by slurm step '
run srun --mpi=pmi2 -N2 "$ROLES" status 7
check 'slurm: the status' status 7
run srun --mpi=pmi2 -N2 "$ROLES" grandchild
check 'slurm: what a machine starts is alone' said '1 machines, started by alone'
run srun -n3 "$ROLES" starter
check 'slurm: without --mpi, status 70' status 70
check 'slurm: without --mpi, the cure' said 'add --mpi=pmi2'
printf '#!/bin/sh\n"%s" starter\n' "$ROLES" >batch.sh
run sbatch -W -o "$FOLDER/batch.out" batch.sh
check 'slurm: a batch script runs alone' grep -q '1 machines, started by alone' "$FOLDER/batch.out"
watched slurm srun --mpi=pmi2 -N2
faults slurm srun --mpi=pmi2 -N2
# The status is that of the killed process.
outlives slurm 137 srun --kill-on-bad-exit=0 --mpi=pmi2 -N2 -n3
# A node fails: its process ends, and Slurm is told that the node is down.
GOSSAMER_SURVIVES=1 begin srun --no-kill --kill-on-bad-exit=0 --mpi=pmi2 -N2 -n3 "$ROLES" goes-on && kill -9 "$(machine 2)"
scontrol update NodeName=b State=DOWN Reason=checked
wait "$PID"
check 'slurm: srun is told of a node that fails' said 'Node failure on b'
check 'slurm: and the program goes on without it' said 'all others have counted on'
for _ in $(seq 200); do
    [ "$(sinfo -h -t idle -o %D)" = 2 ] && break
    sleep 0.1
done
begin srun --mpi=pmi2 -N2 "$ROLES" wait && scancel --signal=TERM "$(squeue -h -s -o %i | grep -v batch | head -1)"
check 'slurm: scancel --signal=TERM ends all' gone
check 'slurm: and is told' said 'the program was ended by signal 15 (SIGTERM)'
hello slurm mpicc.mpich srun --mpi=pmi2 -n4

# PMIx: two slurmd of one host take each other's socket, so on one node.
if srun --mpi=list 2>&1 | grep -qw pmix; then
    run srun --mpi=pmix -w a -N1 -n2 "$WORDCOUNT" "$FOLDER/text"
    check 'slurm, pmix: the words of --local 2' same_words
    run srun --mpi=pmix -w a -N1 -n3 "$ROLES" starter
    check 'slurm, pmix: is named' said '3 machines, started by slurm step '
    run srun --mpi=pmix -w a -N1 -n2 "$ROLES" status 7
    check 'slurm, pmix: the status' status 7
    run srun --mpi=pmix -w a -N1 -n2 "$ROLES" grandchild
    check 'slurm, pmix: what a machine starts is alone' said '1 machines, started by alone'
    watched 'slurm, pmix' srun --mpi=pmix -w a -N1 -n2
    faults 'slurm, pmix' srun --mpi=pmix -w a -N1 -n2
else
    echo "slurm, pmix: not tried: this Slurm was built without the plugin: $(srun --mpi=list 2>&1 | tr '\n' ' ')"
fi
