/* Time that Jerasure 2.0 takes to encode and decode one object with each of three codes: for codes.py.

   codes ROUNDS; prints a line for each measurement: round, code, bytes of a packet, bytes of the object, what, ns. */

#include <jerasure.h>
#include <cauchy.h>
#include <liberation.h>
#include <reed_sol.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Data and parity fragments, as in the paper. */
enum { K = 3, M = 2 };
/* Objects are coded again and again until they have this number of bytes together. */
enum { BYTES_PER_MEASUREMENT = 4 << 20 };

static const long SIZES[] = { 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20 };
static const int PACKETS[] = { 64, 256, 1024, 4096 };
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

struct code {
    const char *name;
    int w;
    int packet_bytes; /* 0: a code of words, without packets */
    int *matrix;      /* of words, or of bits */
    int **schedule;
};

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * now.tv_sec + now.tv_nsec;
}

static void encode(const struct code *code, char **data, char **parity, int bytes)
{
    if (code->packet_bytes == 0)
        jerasure_matrix_encode(K, M, code->w, code->matrix, data, parity, bytes);
    else
        jerasure_schedule_encode(K, M, code->w, code->schedule, data, parity, bytes, code->packet_bytes);
}

static void decode(const struct code *code, int *erased, char **data, char **parity, int bytes)
{
    int failed = code->packet_bytes == 0
        ? jerasure_matrix_decode(K, M, code->w, code->matrix, 1, erased, data, parity, bytes)
        : jerasure_schedule_decode_lazy(K, M, code->w, code->matrix, erased, data, parity, bytes, code->packet_bytes, 1);
    if (failed) {
        fprintf(stderr, "codes: %s cannot decode\n", code->name);
        exit(1);
    }
}

/* Fragments that this code can have of an object: whole words, or whole groups of packets. */
static int fragment_bytes(const struct code *code, long object_bytes)
{
    int grain = code->packet_bytes == 0 ? 16 : code->w * code->packet_bytes;
    long bytes = (object_bytes + K - 1) / K;
    return (bytes + grain - 1) / grain * grain;
}

static void measure(int round, const struct code *code, long object_bytes)
{
    char *data[K], *parity[M], *kept[K];
    int bytes = fragment_bytes(code, object_bytes);
    int count = (BYTES_PER_MEASUREMENT + object_bytes - 1) / object_bytes;
    for (int i = 0; i < K; i++) {
        data[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        kept[i] = malloc(bytes);
        for (int at = 0; at < bytes; at++)
            data[i][at] = kept[i][at] = rand();
    }
    for (int i = 0; i < M; i++)
        parity[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    encode(code, data, parity, bytes);
    for (int losses = 0; losses <= M; losses++) {
        int erased[] = { losses > 0 ? 0 : -1, losses > 1 ? 1 : -1, -1 };
        double began = now_ns();
        for (int n = 0; n < count; n++) {
            if (losses == 0)
                encode(code, data, parity, bytes);
            else
                decode(code, erased, data, parity, bytes);
        }
        double taken = (now_ns() - began) / count;
        static const char *const NAMES[] = { "encode", "decode 1 lost", "decode 2 lost" };
        printf("%d,%s,%d,%ld,%s,%.0f\n", round, code->name, code->packet_bytes, object_bytes, NAMES[losses], taken);
        /* The timed loop decodes over right bytes: one decoding over wrong ones shows that it decodes. */
        if (losses > 0) {
            for (int i = 0; i < losses; i++)
                memset(data[i], 0, bytes);
            decode(code, erased, data, parity, bytes);
        }
        for (int i = 0; i < K; i++) {
            if (memcmp(data[i], kept[i], bytes) != 0) {
                fprintf(stderr, "codes: %s has decoded wrong bytes\n", code->name);
                exit(1);
            }
        }
    }
    for (int i = 0; i < K; i++) {
        free(data[i]);
        free(kept[i]);
    }
    for (int i = 0; i < M; i++)
        free(parity[i]);
}

int main(int argc, char **argv)
{
    struct code codes[1 + 2 * COUNT(PACKETS)];
    int rounds = argc > 1 ? atoi(argv[1]) : 5, count = 0;
    codes[count++] = (struct code){ "RS Vandermonde", 8, 0, reed_sol_vandermonde_coding_matrix(K, M, 8), NULL };
    for (unsigned p = 0; p < COUNT(PACKETS); p++) {
        int *crs = jerasure_matrix_to_bitmatrix(K, M, 8, cauchy_good_general_coding_matrix(K, M, 8));
        int *liberation = liberation_coding_bitmatrix(K, 7);
        codes[count++] = (struct code){ "CRS", 8, PACKETS[p], crs, jerasure_smart_bitmatrix_to_schedule(K, M, 8, crs) };
        codes[count++] = (struct code){ "Liberation", 7, PACKETS[p], liberation,
                                        jerasure_smart_bitmatrix_to_schedule(K, M, 7, liberation) };
    }
    for (int round = 0; round < rounds; round++)
        for (unsigned s = 0; s < COUNT(SIZES); s++)
            for (int c = 0; c < count; c++)
                measure(round, &codes[c], SIZES[s]);
    return 0;
}
