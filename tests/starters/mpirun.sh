# Open MPI's mpirun, by PMIx.
need mpirun.openmpi openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun=(mpirun.openmpi --oversubscribe)
check 'mpirun: counts words' words
run "${mpirun[@]}" -np 2 "$WORDCOUNT" "$FOLDER/text"
check 'mpirun: the words of --local 2' same_words
run "${mpirun[@]}" -np 3 "$ROLES" starter
check 'mpirun: is named' said '3 machines, started by mpirun: here shm shm'
run "${mpirun[@]}" -np 2 "$ROLES" status 7
check 'mpirun: the status' status 7
run "${mpirun[@]}" -np 2 "$ROLES" grandchild
check 'mpirun: what a machine starts is alone' said '1 machines, started by alone'
watched mpirun "${mpirun[@]}" -np 2
faults mpirun "${mpirun[@]}" -np 2
outlives mpirun 0 "${mpirun[@]}" --enable-recovery -np 3
server() { below "$1" mpirun.openmpi; }
orphans mpirun server "${mpirun[@]}" -np 2
many mpirun "${mpirun[@]}" -np 128
hello mpirun mpicc.openmpi "${mpirun[@]}" -np 4
