/* Comparison for a scan in `gossamer-bench region`: process 0 gets all of process 1 by 4 KiB, and adds its words up.
 * Prints nanoseconds and the sum. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS 512

int main(int argc, char **argv) {
    int rank;
    MPI_Win window;
    uint64_t *own, page[WORDS], sum = 0;
    long long pages = argc > 1 ? atoll(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(rank == 1 ? pages * (MPI_Aint)sizeof page : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    MPI_Win_lock_all(0, window);
    if (rank == 1)
        for (long long i = 0; i < pages * WORDS; i++) own[i] = (uint64_t)i;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        double began = MPI_Wtime();
        for (long long i = 0; i < pages; i++) {
            MPI_Get(page, sizeof page, MPI_BYTE, 1, i * (MPI_Aint)sizeof page, sizeof page, MPI_BYTE, window);
            MPI_Win_flush(1, window);
            for (int j = 0; j < WORDS; j++) sum += page[j];
        }
        printf("{\"ns\": %.0f, \"digest\": %llu}\n", (MPI_Wtime() - began) * 1e9, (unsigned long long)sum);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
