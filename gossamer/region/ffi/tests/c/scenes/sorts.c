/* Each thread sorts a part of one array, and main merges the parts. */
enum { PART@K = @[10..3000] };
static unsigned numbers@K[@T * PART@K];
static int compare@K(const void *one, const void *other) {
    unsigned a = *(const unsigned *)one, b = *(const unsigned *)other;
    return a < b ? -1 : a > b;
}
static void *body@K(void *number) {
    qsort(numbers@K + (intptr_t)number * PART@K, PART@K, sizeof *numbers@K, compare@K);
    return NULL;
}
static void scene@K(void) {
    unsigned state = @S, sum = 0, at[@T] = {};
    for (int i = 0; i < @T * PART@K; i++)
        numbers@K[i] = draw(&state);
    run(@T, body@K);
    for (int i = 0; i < @T * PART@K; i++) {
        int least = -1;
        for (int part = 0; part < @T; part++) {
            unsigned *first = numbers@K + part * PART@K + at[part];
            if (at[part] < PART@K && (least < 0 || *first < numbers@K[least * PART@K + at[least]]))
                least = part;
        }
        sum = mix(sum, numbers@K[least * PART@K + at[least]++]);
    }
    say(@K, "sum %x\n", sum);
}
