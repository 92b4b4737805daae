# MPICH's hydra, by PMI-1.
need mpiexec.hydra mpich
check 'hydra: counts words' words
run mpiexec.hydra -n 2 "$WORDCOUNT" "$FOLDER/text"
check 'hydra: the words of --local 2' same_words
run mpiexec.hydra -n 3 "$ROLES" starter
check 'hydra: is named' said '3 machines, started by hydra: here shm shm'
run mpiexec.hydra -n 2 "$ROLES" status 7
check 'hydra: the status' status 7
run mpiexec.hydra -n 2 "$ROLES" grandchild
check 'hydra: what a machine starts is alone' said '1 machines, started by alone'
watched hydra mpiexec.hydra -n 2
faults hydra mpiexec.hydra -n 2
# Its proxy of a host ends all processes there if one is killed: names of this host play three hosts.
outlives hydra 9 mpiexec.hydra -disable-auto-cleanup -launcher fork -hosts "127.0.0.1,localhost,$(hostname)" -n 3
several hydra mpiexec.hydra -n 3
proxy() { below "$1" hydra_pmi_proxy || below "$1" /usr/bin/hydra_pmi_proxy; }
orphans hydra proxy mpiexec.hydra -n 2
many hydra mpiexec.hydra -n 128
hello hydra mpicc.mpich mpiexec.hydra -n 4
