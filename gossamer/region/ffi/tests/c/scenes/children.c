/* Threads start programs and read what they print. */
static void *body@K(void *number) {
    char command[64], line[64] = "";
    snprintf(command, sizeof command, "echo $((%d * 7)); exit %d", (int)(intptr_t)number, 1 + (int)(intptr_t)number);
    FILE *child = popen(command, "r");
    MUST(child != NULL && fgets(line, sizeof line, child));
    int status = pclose(child);
    return (void *)(intptr_t)(atoi(line) * 100 + WEXITSTATUS(status));
}
static void scene@K(void) {
    say(@K, "sum %lu, system %d\n", run(@T, body@K), WEXITSTATUS(system("exit @[1..99]")));
}
