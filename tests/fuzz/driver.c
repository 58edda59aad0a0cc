/* A main for the fuzz targets without libFuzzer: runs every file named on the command line, then
 * 20000 seeded mutations of each (bytes changed, pieces cut and doubled). A target that finds
 * something wrong aborts; sanitizers say the rest. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16, MUTATIONS = 20000 };

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Changes x in place; returns its new size, at most MOST. */
static size_t mutate(uint8_t *x, size_t size, uint64_t *state)
{
    for (uint32_t n = 1 + next(state) % 4; n > 0 && size > 0; n--) {
        size_t const at = next(state) % size, length = 1 + next(state) % (size - at);
        switch (next(state) % 4) {
        case 0: x[at] = (uint8_t)next(state); break;
        case 1: x[at] = (uint8_t)(x[at] ^ (1u << next(state) % 8)); break;
        case 2: /* cut */
            memmove(x + at, x + at + length, size - at - length);
            size -= length;
            break;
        case 3: /* double */
            if (size + length > MOST) break;
            memmove(x + at + length, x + at, size - at);
            size += length;
            break;
        }
    }
    return size;
}

/* Exact-size copies, so that a sanitizer sees every read past the end. */
static void run(const uint8_t *x, size_t size)
{
    uint8_t *const copy = malloc(size > 0 ? size : 1);
    if (!copy) return;
    if (size == 0) copy[0] = 0;
    memcpy(copy, x, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

int main(int argc, char **argv)
{
    static uint8_t seed[MOST], x[MOST];
    uint64_t state = 1;
    run(seed, 0);
    for (int i = 1; i < argc; i++) {
        FILE *const file = fopen(argv[i], "rb");
        if (!file) {
            printf("%s: cannot open\n", argv[i]);
            return 1;
        }
        size_t const size = fread(seed, 1, MOST, file);
        fclose(file);
        run(seed, size);
        for (int m = 0; m < MUTATIONS; m++) {
            memcpy(x, seed, size);
            run(x, mutate(x, size, &state));
        }
    }
    return 0;
}
