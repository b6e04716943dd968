/* Paritas from C. docs/client.md says what is promised; this file says how to call it.
 *
 *     const char *settings[] = {"decode", "auto", "deadline_ms", "2000", NULL};
 *     paritas_client *client;
 *     if (paritas_open(PARITAS_VERSION, "127.0.0.1:6379", settings, &client) != PARITAS_OK)
 *         fprintf(stderr, "%s\n", paritas_error());
 *
 * Rules of all functions
 *   - What is given to a function (keys, values, words) is copied before it returns, and stays the caller's.
 *   - `client` may be used by several threads at once. An operation's number and a reply are for one thread at a time.
 *   - A pointer to bytes may be NULL only where its length is 0. Other pointers may be NULL only where it says so.
 *   - Whoever calls gives pointers to as many bytes as he says. Everything else is checked, and wrong arguments get
 *     PARITAS_BAD_ARGUMENT.
 *   - A function that returns a status writes its results only with PARITAS_OK, unless it says otherwise.
 *   - A client does not survive fork(): in the child every call gets PARITAS_BAD_ARGUMENT. Open another one there.
 */
#ifndef PARITAS_H
#define PARITAS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: major * 1,000,000 + minor * 1,000 + patch. */
#define PARITAS_VERSION 1000u

/* A connection to a cluster. From paritas_open to paritas_close. */
typedef struct paritas_client paritas_client;

/* What an operation has returned. It belongs to whoever got it, until paritas_reply_free. */
typedef struct paritas_reply paritas_reply;

/* The number of an operation under way. Each is to be waited for until its reply came, or given up with paritas_cancel;
 * else its reply stays in memory until paritas_close. */
typedef uint64_t paritas_op;

/* How a call has ended. paritas_error() has the text of all but PARITAS_OK, PARITAS_NO_VALUE and PARITAS_NOT_YET. */
typedef enum paritas_status {
    PARITAS_OK = 0,
    /* The key has no value. */
    PARITAS_NO_VALUE = 1,
    /* The operation has not ended in this time. It goes on. */
    PARITAS_NOT_YET = 2,
    /* A node has refused it. Nothing has changed. */
    PARITAS_REFUSED = 3,
    /* The operation may have happened, or may happen yet. */
    PARITAS_UNCERTAIN = 4,
    /* No node has answered in time. Nothing has changed. */
    PARITAS_UNREACHABLE = 5,
    /* As many operations as `ops_max` are under way: wait for one. Nothing was begun. */
    PARITAS_BUSY = 6,
    /* The value is longer than the caller's buffer. */
    PARITAS_TOO_SMALL = 7,
    /* No operation with this number is waited for: its reply was taken, or it was given up. */
    PARITAS_NO_OPERATION = 8,
    PARITAS_BAD_ARGUMENT = 9,
    /* The machine gives no thread or no poll. */
    PARITAS_SYSTEM = 10,
    /* A bug of this library. */
    PARITAS_INTERNAL = 11
} paritas_status;

typedef enum paritas_type {
    PARITAS_NULL = 0,
    /* Bytes, the value of a key for example. */
    PARITAS_STRING = 1,
    /* Text of the node, `OK` for example. */
    PARITAS_TEXT = 2,
    PARITAS_INTEGER = 3,
    PARITAS_ARRAY = 4,
    /* An error inside an array. Elsewhere an error is a status. */
    PARITAS_ERROR = 5
} paritas_type;

/* Where the time of an operation went. */
typedef struct paritas_phases {
    /* From its submission until the first command was written. */
    uint64_t request_ns;
    /* Sums, encoding and decoding in this process. */
    uint64_t coding_ns;
    /* The rest. */
    uint64_t wait_ns;
    /* 1 if this process has put the value together from its parts, else 0. */
    uint64_t decoded_here;
    /* 1 if this process has cut and encoded the value, and sent its parts, else 0. */
    uint64_t encoded_here;
} paritas_phases;

/* Counts since the client was opened. */
typedef struct paritas_counts {
    /* Values that this process has put together. */
    uint64_t decoded_here;
    /* Bytes of units that came. */
    uint64_t unit_bytes;
    /* Units that were asked for because others were late, and their bytes. */
    uint64_t replaced;
    uint64_t replaced_bytes;
    /* Answers whose bytes were not those of their sums. They were not used. */
    uint64_t wrong;
    /* Values whose place was asked for again. */
    uint64_t located_again;
    /* Values that a node was asked for, because their parts could not be read. */
    uint64_t by_node;
    /* Values that this process has encoded. */
    uint64_t encoded_here;
    /* Bytes of commands with units that were taken. */
    uint64_t put_bytes;
    /* Values that a node has encoded, because their parts could not be written. */
    uint64_t encoded_by_node;
} paritas_counts;

/* ---- Errors and versions ---- */

/* The text of the last call of this thread that returned an error, ending with a NUL. Never NULL. It belongs to the
 * library, and is there until this thread's next call that returns an error. */
const char *paritas_error(void);

/* The name of a status, `PARITAS_BUSY` for example. Static. */
const char *paritas_status_name(int status);

/* Version of the library, counted like PARITAS_VERSION. */
uint32_t paritas_version(void);

/* ---- A client ---- */

/* Opens a client. `version` is PARITAS_VERSION: a library that this header does not fit refuses it. `addresses` are
 * those of nodes, `host:port,host:port`, of the port for any key; one is enough, more survive the loss of that one.
 * `settings` are names and values in turn, ended by NULL; or NULL. docs/client.md has their names. Connections are made
 * when they are needed: that no node is there is found by the first operation. */
int paritas_open(uint32_t version, const char *addresses, const char *const *settings, paritas_client **client);

/* Closes a client and frees it; NULL is allowed. What is under way ends without a reply, and writes among it may happen.
 * No other thread may be in a call with this client, and none may use it afterwards. Replies stay. */
void paritas_close(paritas_client *client);

/* Counts so far. `bytes` is sizeof *counts: a library that has more of them writes no more than that, one that has fewer
 * writes zeros. */
int paritas_stats(paritas_client *client, paritas_counts *counts, size_t bytes);

/* ---- Operations that are waited for. They wait too while as many as `ops_max` are under way. ---- */

/* Copies the value of a key into `buffer`, and its length into `value_bytes`. If it is longer than `capacity_bytes`:
 * PARITAS_TOO_SMALL, with the length in `value_bytes`, and `buffer` as it was. `buffer` may be NULL with capacity 0. */
int paritas_get(paritas_client *client, const void *key, size_t key_bytes, void *buffer, size_t capacity_bytes,
                size_t *value_bytes);

/* The value of a key in a reply, which has a buffer of the library. No value: PARITAS_NO_VALUE, and no reply. */
int paritas_get_reply(paritas_client *client, const void *key, size_t key_bytes, paritas_reply **reply);

/* Sets the value of a key. PARITAS_OK: it bears the losses that the cluster promises. */
int paritas_set(paritas_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Any command of `count` words, its name first. `key_index` says which word is the key, in whose order it happens; 0 if
 * it has none. Commands that change a connection (MULTI, SELECT, AUTH, …) are refused: all operations share it. */
int paritas_command(paritas_client *client, size_t count, const void *const *words, const size_t *words_bytes,
                    size_t key_index, paritas_reply **reply);

/* ---- Operations that are begun. They never wait: PARITAS_BUSY. ---- */

int paritas_iget(paritas_client *client, const void *key, size_t key_bytes, paritas_op *op);

int paritas_iset(paritas_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                 paritas_op *op);

/* As paritas_command. */
int paritas_icommand(paritas_client *client, size_t count, const void *const *words, const size_t *words_bytes,
                     size_t key_index, paritas_op *op);

/* Whether an operation has ended; it does not wait. Not yet: PARITAS_NOT_YET. Ended: its status, as the function that
 * waits has it, and with PARITAS_OK its reply. With every status but PARITAS_NOT_YET the number is used up. `reply` may
 * be NULL: then the reply is freed. A GET without a value is PARITAS_OK with a reply of type PARITAS_NULL. */
int paritas_test(paritas_client *client, paritas_op op, paritas_reply **reply);

/* As paritas_test, but waits at most `limit_ms`; a negative one is no limit. An operation ends by itself: after
 * `deadline_ms` at the latest. */
int paritas_wait(paritas_client *client, paritas_op op, int64_t limit_ms, paritas_reply **reply);

/* As paritas_wait, for the first of several that ends. `index` gets its place in `ops`; also if its status is an error of
 * the operation. Numbers that are used up are passed over; PARITAS_NO_OPERATION if all are. */
int paritas_wait_any(paritas_client *client, const paritas_op *ops, size_t count, int64_t limit_ms, size_t *index,
                     paritas_reply **reply);

/* Waits until another operation may be begun: after PARITAS_BUSY. Another thread may be faster. */
int paritas_wait_room(paritas_client *client, int64_t limit_ms);

/* Nobody wants the reply of an operation. It may happen all the same. A number that is used up is no error. */
int paritas_cancel(paritas_client *client, paritas_op op);

/* ---- Replies. `reply` may be NULL: that is a reply of type PARITAS_NULL. ---- */

/* Frees a reply, and what was got out of it. NULL is allowed. Not for elements of an array. */
void paritas_reply_free(paritas_reply *reply);

/* One of paritas_type. */
int paritas_reply_type(const paritas_reply *reply);

/* The bytes of PARITAS_STRING, PARITAS_TEXT and PARITAS_ERROR, and their number; of others NULL and 0. No NUL ends them.
 * They belong to the reply. `bytes` may be NULL. */
const void *paritas_reply_bytes(const paritas_reply *reply, size_t *bytes);

/* The number of PARITAS_INTEGER; of others 0. */
int64_t paritas_reply_integer(const paritas_reply *reply);

/* How many elements PARITAS_ARRAY has; others have none. */
size_t paritas_reply_count(const paritas_reply *reply);

/* An element of PARITAS_ARRAY, or NULL if there is none at this place. It belongs to the reply. */
const paritas_reply *paritas_reply_element(const paritas_reply *reply, size_t index);

/* Where the time of the operation went; of an element zeros. `bytes` as for paritas_stats. */
int paritas_reply_phases(const paritas_reply *reply, paritas_phases *phases, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
