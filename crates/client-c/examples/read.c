/* Writes one value, reads it again and again with several reads under way, and prints how long that took.
 *
 *     read ADDRESS[,ADDRESS...] [server|client|auto] [BYTES] [READS] [WINDOW]
 */
#define _POSIX_C_SOURCE 200809L
#include <paritas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW_MAX 64

static void stop(const char *what) {
    fprintf(stderr, "%s: %s\n", what, paritas_error());
    exit(1);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    const char *key = "example:read";
    const char *settings[] = {"decode", count > 2 ? arguments[2] : "auto", NULL};
    size_t bytes = count > 3 ? strtoul(arguments[3], NULL, 10) : 1 << 20;
    size_t reads = count > 4 ? strtoul(arguments[4], NULL, 10) : 200;
    size_t window = count > 5 ? strtoul(arguments[5], NULL, 10) : 1;
    if (count < 2 || bytes == 0 || reads == 0 || window == 0 || window > WINDOW_MAX) {
        fprintf(stderr, "usage: read ADDRESS[,ADDRESS...] [server|client|auto] [BYTES] [READS] [WINDOW, up to 64]\n");
        return 2;
    }
    paritas_client *client;
    if (paritas_open(PARITAS_VERSION, arguments[1], settings, &client) != PARITAS_OK)
        stop("open");

    unsigned char *value = malloc(bytes);
    double *took_ms = calloc(reads, sizeof *took_ms);
    if (value == NULL || took_ms == NULL)
        return 1;
    for (size_t i = 0; i < bytes; i++)
        value[i] = (unsigned char)(i * i / 7);
    if (paritas_set(client, key, strlen(key), value, bytes) != PARITAS_OK)
        stop("set");

    paritas_op under_way[WINDOW_MAX];
    double begun_ms[WINDOW_MAX];
    size_t begun = 0, ended = 0, decoded_here = 0;
    double first_ms = now_ms(), coding_ms = 0;
    while (ended < reads) {
        if (begun < reads && begun - ended < window) {
            begun_ms[begun % window] = now_ms();
            if (paritas_iget(client, key, strlen(key), &under_way[begun % window]) != PARITAS_OK)
                stop("iget");
            begun++;
            continue;
        }
        paritas_reply *reply;
        if (paritas_wait(client, under_way[ended % window], -1, &reply) != PARITAS_OK)
            stop("wait");
        took_ms[ended] = now_ms() - begun_ms[ended % window];
        size_t length;
        const void *read = paritas_reply_bytes(reply, &length);
        if (length != bytes || memcmp(read, value, bytes) != 0) {
            fprintf(stderr, "the value that was read is not the one that was written\n");
            return 1;
        }
        paritas_phases phases;
        if (paritas_reply_phases(reply, &phases, sizeof phases) != PARITAS_OK)
            stop("phases");
        coding_ms += (double)phases.coding_ns / 1e6;
        decoded_here += phases.decoded_here;
        paritas_reply_free(reply);
        ended++;
    }
    double all_ms = now_ms() - first_ms;
    qsort(took_ms, reads, sizeof *took_ms, by_size);
    printf("%zu reads of %zu B: median %.2f ms, longest %.2f ms, %.0f MB/s; %zu decoded here, coding %.3f ms a read\n", reads,
           bytes, took_ms[reads / 2], took_ms[reads - 1], (double)bytes * (double)reads / all_ms / 1e3, decoded_here,
           coding_ms / (double)reads);
    free(took_ms);
    free(value);
    paritas_close(client);
    return 0;
}
