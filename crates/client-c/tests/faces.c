/* The functions of paritas.h against a cluster: tests/test_client_faces.py builds it with AddressSanitizer and starts it
 * with the addresses of nodes, and the word `on` if these take parts from clients. It ends with 0 if all is as the header
 * says. */
#define _POSIX_C_SOURCE 200809L
#include <paritas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE_BYTES (1 << 20)

static void expect_at(int line, int is_so, const char *what) {
    if (is_so)
        return;
    fprintf(stderr, "line %d: %s; the last error was: %s\n", line, what, paritas_error());
    exit(1);
}
#define EXPECT(condition) expect_at(__LINE__, (condition), #condition)
#define STATUS(wanted, call) expect_at(__LINE__, (call) == (wanted), #call " is not " #wanted)

static void says(int line, const char *word) {
    expect_at(line, strstr(paritas_error(), word) != NULL, word);
}
#define SAYS(word) says(__LINE__, word)

static unsigned char *large_value(void) {
    unsigned char *value = malloc(LARGE_BYTES);
    EXPECT(value != NULL);
    for (size_t i = 0; i < LARGE_BYTES; i++)
        value[i] = (unsigned char)(i * i / 7 + i);
    return value;
}

static void opening(const char *addresses) {
    paritas_client *client = NULL;
    const char *unknown[] = {"decod", "auto", NULL};
    const char *wrong[] = {"decode", "both", NULL}, *wrongly[] = {"encode", "both", NULL};
    const char *unpaired[] = {"decode", NULL};
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION + 1000, addresses, NULL, &client));
    SAYS("header");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, NULL, NULL, &client));
    SAYS("addresses is NULL");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, addresses, NULL, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, "nowhere", NULL, &client));
    SAYS("host:port");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, addresses, unknown, &client));
    SAYS("decode, encode, user, password");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, addresses, wrong, &client));
    SAYS("server, client or auto");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, addresses, wrongly, &client));
    SAYS("encode is server, client or auto");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_open(PARITAS_VERSION, addresses, unpaired, &client));
    EXPECT(client == NULL);
    EXPECT(paritas_version() == PARITAS_VERSION);
    EXPECT(strcmp(paritas_status_name(PARITAS_BUSY), "PARITAS_BUSY") == 0);
    EXPECT(strcmp(paritas_status_name(-5), "no status of Paritas") == 0);
    paritas_close(NULL);
    paritas_reply_free(NULL);
    EXPECT(paritas_reply_type(NULL) == PARITAS_NULL);
    EXPECT(paritas_reply_element(NULL, 0) == NULL);
}

static void wrong_arguments(paritas_client *client) {
    char buffer[8];
    size_t bytes;
    paritas_op op;
    paritas_reply *reply;
    paritas_counts counts;
    STATUS(PARITAS_BAD_ARGUMENT, paritas_get(NULL, "k", 1, buffer, sizeof buffer, &bytes));
    SAYS("client is NULL");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_get(client, NULL, 1, buffer, sizeof buffer, &bytes));
    SAYS("key is NULL");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_get(client, "k", 1, NULL, 1, &bytes));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_get(client, "k", 1, buffer, sizeof buffer, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_set(client, "k", 1, NULL, 1));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_set(client, "k", 1, "v", (size_t)-1));
    SAYS("bytes");
    STATUS(PARITAS_BAD_ARGUMENT, paritas_iget(client, "k", 1, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_iset(client, "k", 1, "v", 1, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_get_reply(client, "k", 1, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_command(client, 1, NULL, NULL, 0, &reply));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_icommand(client, (size_t)-1, (const void *const *)&client, &bytes, 0, &op));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_wait_any(client, NULL, 1, 0, &bytes, NULL));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_stats(client, NULL, sizeof counts));
    STATUS(PARITAS_BAD_ARGUMENT, paritas_stats(client, &counts, 0));
    STATUS(PARITAS_NO_OPERATION, paritas_test(client, 123456, NULL));
    STATUS(PARITAS_NO_OPERATION, paritas_wait_any(client, &op, 0, -1, &bytes, NULL));
    STATUS(PARITAS_OK, paritas_cancel(client, 123456));
}

static void values(paritas_client *client) {
    unsigned char *value = large_value(), *read = malloc(LARGE_BYTES);
    EXPECT(read != NULL);
    size_t bytes = 77, sizes[] = {0, 1, 32, 70000, LARGE_BYTES};
    STATUS(PARITAS_NO_VALUE, paritas_get(client, "c:none", 6, read, LARGE_BYTES, &bytes));
    EXPECT(bytes == 77);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        STATUS(PARITAS_OK, paritas_set(client, "c:key", 5, value, sizes[i]));
        memset(read, 0, LARGE_BYTES);
        STATUS(PARITAS_OK, paritas_get(client, "c:key", 5, read, sizes[i], &bytes));
        EXPECT(bytes == sizes[i] && memcmp(read, value, bytes) == 0);
        if (bytes == 0)
            continue;
        memset(read, 7, LARGE_BYTES);
        STATUS(PARITAS_TOO_SMALL, paritas_get(client, "c:key", 5, read, sizes[i] - 1, &bytes));
        EXPECT(bytes == sizes[i] && read[0] == 7);
        SAYS("the value has");
        paritas_reply *reply;
        STATUS(PARITAS_OK, paritas_get_reply(client, "c:key", 5, &reply));
        EXPECT(paritas_reply_type(reply) == PARITAS_STRING);
        EXPECT(memcmp(paritas_reply_bytes(reply, &bytes), value, sizes[i]) == 0 && bytes == sizes[i]);
        paritas_phases phases;
        STATUS(PARITAS_OK, paritas_reply_phases(reply, &phases, sizeof phases));
        EXPECT(phases.wait_ns > 0 && phases.decoded_here == (sizes[i] > 1 << 16));
        paritas_reply_free(reply);
    }
    /* Keys and values may have any bytes. */
    STATUS(PARITAS_OK, paritas_set(client, "a\0b", 3, "\0\r\n", 3));
    STATUS(PARITAS_OK, paritas_get(client, "a\0b", 3, read, 3, &bytes));
    EXPECT(bytes == 3 && memcmp(read, "\0\r\n", 3) == 0);
    STATUS(PARITAS_NO_VALUE, paritas_get(client, "a", 1, read, 3, &bytes));
    free(read);
    free(value);
}

/* Who encodes a value. `is_on`: the nodes take parts from clients. */
static void writes(paritas_client *client, int is_on) {
    unsigned char *value = large_value();
    paritas_op op;
    paritas_reply *reply;
    paritas_phases phases;
    paritas_counts before, after;
    STATUS(PARITAS_OK, paritas_stats(client, &before, sizeof before));
    STATUS(PARITAS_OK, paritas_iset(client, "c:write", 7, value, LARGE_BYTES, &op));
    STATUS(PARITAS_OK, paritas_wait(client, op, -1, &reply));
    EXPECT(paritas_reply_type(reply) == PARITAS_TEXT);
    STATUS(PARITAS_OK, paritas_reply_phases(reply, &phases, sizeof phases));
    EXPECT(phases.encoded_here == (uint64_t)is_on && phases.decoded_here == 0);
    EXPECT((phases.coding_ns > 0) == is_on);
    paritas_reply_free(reply);
    STATUS(PARITAS_OK, paritas_stats(client, &after, sizeof after));
    EXPECT(after.encoded_here - before.encoded_here == (uint64_t)is_on);
    EXPECT(is_on ? after.put_bytes - before.put_bytes > LARGE_BYTES : after.put_bytes == 0);
    EXPECT(!is_on || after.encoded_by_node == 0);
    free(value);
}

static int run(paritas_client *client, const char *const *words, size_t key_index, paritas_reply **reply) {
    size_t count = 0, lengths[8];
    const void *pointers[8];
    for (; words[count] != NULL; count++) {
        pointers[count] = words[count];
        lengths[count] = strlen(words[count]);
    }
    return paritas_command(client, count, pointers, lengths, key_index, reply);
}

static void commands(paritas_client *client) {
    paritas_reply *reply = NULL;
    size_t bytes;
    const char *mset[] = {"MSET", "{c}1", "one", "{c}2", "5", NULL}, *incr[] = {"INCR", "{c}2", NULL};
    const char *mget[] = {"MGET", "{c}1", "{c}none", "{c}2", NULL}, *push[] = {"INCR", "{c}1", NULL};
    const char *multi[] = {"multi", NULL};
    STATUS(PARITAS_OK, run(client, mset, 1, &reply));
    EXPECT(paritas_reply_type(reply) == PARITAS_TEXT);
    EXPECT(memcmp(paritas_reply_bytes(reply, &bytes), "OK", 2) == 0 && bytes == 2);
    paritas_reply_free(reply);
    STATUS(PARITAS_OK, run(client, incr, 1, &reply));
    EXPECT(paritas_reply_type(reply) == PARITAS_INTEGER && paritas_reply_integer(reply) == 6);
    EXPECT(paritas_reply_bytes(reply, &bytes) == NULL && bytes == 0);
    paritas_reply_free(reply);
    STATUS(PARITAS_OK, run(client, mget, 1, &reply));
    EXPECT(paritas_reply_type(reply) == PARITAS_ARRAY && paritas_reply_count(reply) == 3);
    EXPECT(paritas_reply_type(paritas_reply_element(reply, 1)) == PARITAS_NULL);
    const paritas_reply *last = paritas_reply_element(reply, 2);
    EXPECT(memcmp(paritas_reply_bytes(last, NULL), "6", 1) == 0);
    EXPECT(paritas_reply_element(reply, 3) == NULL);
    paritas_reply_free(reply);
    reply = NULL;
    STATUS(PARITAS_REFUSED, run(client, push, 1, &reply));
    SAYS("integer");
    STATUS(PARITAS_BAD_ARGUMENT, run(client, multi, 0, &reply));
    SAYS("MULTI");
    EXPECT(reply == NULL);
}

static void under_way(paritas_client *client) {
    enum { ALL = 64 };
    paritas_op ops[ALL], more;
    char key[16], value[16];
    for (int i = 0; i < ALL; i++) {
        int length = snprintf(key, sizeof key, "c:%d", i);
        snprintf(value, sizeof value, "value %d", i);
        /* What was given may be overwritten at once. */
        int status;
        while ((status = paritas_iset(client, key, (size_t)length, value, strlen(value), &ops[i])) == PARITAS_BUSY)
            paritas_wait_room(client, -1);
        STATUS(PARITAS_OK, status);
    }
    for (int i = 0; i < ALL; i++)
        STATUS(PARITAS_OK, paritas_wait(client, ops[i], -1, NULL));
    STATUS(PARITAS_NO_OPERATION, paritas_wait(client, ops[0], -1, NULL));
    for (int i = 0; i < ALL; i++) {
        int length = snprintf(key, sizeof key, "c:%d", i);
        STATUS(PARITAS_OK, paritas_wait_room(client, -1));
        STATUS(PARITAS_OK, paritas_iget(client, key, (size_t)length, &ops[i]));
    }
    for (int i = 0; i < ALL; i++) {
        paritas_reply *reply;
        size_t index, bytes;
        STATUS(PARITAS_OK, paritas_wait_any(client, ops, ALL, -1, &index, &reply));
        int length = snprintf(value, sizeof value, "value %zu", index);
        const void *read = paritas_reply_bytes(reply, &bytes);
        EXPECT(bytes == (size_t)length && memcmp(read, value, bytes) == 0);
        paritas_reply_free(reply);
    }
    size_t index;
    STATUS(PARITAS_NO_OPERATION, paritas_wait_any(client, ops, ALL, -1, &index, NULL));
    STATUS(PARITAS_OK, paritas_iget(client, "c:1", 3, &more));
    STATUS(PARITAS_OK, paritas_cancel(client, more));
    STATUS(PARITAS_NO_OPERATION, paritas_test(client, more, NULL));
}

static void *reads(void *argument) {
    paritas_client *client = argument;
    char buffer[32];
    size_t bytes;
    for (int i = 0; i < 200; i++) {
        STATUS(PARITAS_OK, paritas_get(client, "c:7", 3, buffer, sizeof buffer, &bytes));
        EXPECT(bytes == 7 && memcmp(buffer, "value 7", 7) == 0);
    }
    return NULL;
}

static void threads(paritas_client *client) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&all[i], NULL, reads, client) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
}

static void forked(paritas_client *client) {
    pid_t child = fork();
    if (child == 0) {
        char buffer[8];
        size_t bytes;
        int is_refused = paritas_get(client, "c:7", 3, buffer, sizeof buffer, &bytes) == PARITAS_BAD_ARGUMENT;
        paritas_close(client);
        _exit(is_refused ? 0 : 1);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* A client of an address where nobody listens: it is opened, and says so later. */
static void nobody(void) {
    const char *settings[] = {"deadline_ms", "200", "ops_max", "2", NULL};
    paritas_client *client;
    STATUS(PARITAS_OK, paritas_open(PARITAS_VERSION, "127.0.0.1:1", settings, &client));
    paritas_op ops[3];
    size_t bytes;
    STATUS(PARITAS_OK, paritas_iget(client, "k", 1, &ops[0]));
    STATUS(PARITAS_OK, paritas_iset(client, "k", 1, "v", 1, &ops[1]));
    STATUS(PARITAS_BUSY, paritas_iget(client, "k", 1, &ops[2]));
    SAYS("wait for one");
    STATUS(PARITAS_NOT_YET, paritas_wait_room(client, 1));
    STATUS(PARITAS_NOT_YET, paritas_test(client, ops[0], NULL));
    STATUS(PARITAS_NOT_YET, paritas_wait_any(client, ops, 2, 1, &bytes, NULL));
    STATUS(PARITAS_UNREACHABLE, paritas_wait(client, ops[0], -1, NULL));
    SAYS("nothing has changed");
    STATUS(PARITAS_UNREACHABLE, paritas_wait(client, ops[1], -1, NULL));
    STATUS(PARITAS_OK, paritas_iget(client, "k", 1, &ops[2]));
    paritas_close(client);
}

int main(int count, char **arguments) {
    EXPECT(count == 2 || count == 3);
    int is_on = count == 3 && strcmp(arguments[2], "on") == 0;
    opening(arguments[1]);
    const char *settings[] = {"decode", "client", "encode", "client", NULL};
    paritas_client *client;
    STATUS(PARITAS_OK, paritas_open(PARITAS_VERSION, arguments[1], settings, &client));
    wrong_arguments(client);
    values(client);
    writes(client, is_on);
    commands(client);
    under_way(client);
    threads(client);
    forked(client);
    /* A header that knows more or fewer counts than the library. */
    struct {
        paritas_counts counts;
        uint64_t newer, behind;
    } counts;
    memset(&counts, 0xff, sizeof counts);
    STATUS(PARITAS_OK, paritas_stats(client, &counts.counts, sizeof counts.counts + sizeof counts.newer));
    EXPECT(counts.counts.decoded_here >= 2 && counts.newer == 0 && counts.behind == UINT64_MAX);
    memset(&counts, 0xff, sizeof counts);
    STATUS(PARITAS_OK, paritas_stats(client, &counts.counts, sizeof(uint64_t)));
    EXPECT(counts.counts.decoded_here >= 2 && counts.counts.unit_bytes == UINT64_MAX);
    paritas_op left;
    STATUS(PARITAS_OK, paritas_iget(client, "c:key", 5, &left));
    paritas_close(client);
    nobody();
    puts("all as the header says");
    return 0;
}
