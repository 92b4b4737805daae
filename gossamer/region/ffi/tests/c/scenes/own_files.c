/* Each thread writes a file of its own, and reads it back. */
static void *body@K(void *number) {
    int file = temporary();
    FILE *stream = fdopen(file, "w+");
    MUST(stream != NULL);
    @{|setvbuf(stream, NULL, _IOFBF, 100);|setvbuf(stream, NULL, _IOLBF, 0);}
    for (int i = 0; i < @R; i++)
        fprintf(stream, "line %d of %d\n", i, (int)(intptr_t)number);
    MUST(fseek(stream, @{0|5|9}, SEEK_SET) == 0);
    unsigned sum = 0;
    for (int letter; (letter = getc(stream)) != EOF;)
        sum = mix(sum, letter);
    MUST(fclose(stream) == 0);
    return (void *)(uintptr_t)sum;
}
static void scene@K(void) {
    say(@K, "sum %lx\n", run(@T, body@K));
}
