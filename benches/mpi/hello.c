/* Started by `gossamer-bench operations` in comparison with a program of its own. With an argument: prints its process,
 * and waits. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, last = (int)getpid();
    (void)argv;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Bcast(&last, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        if (argc > 1) printf("%d\n", last); else printf("%d machines\n", size);
        fflush(stdout);
    }
    if (argc > 1) sleep(60);
    MPI_Finalize();
    return 0;
}
