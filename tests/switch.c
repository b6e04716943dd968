// An Ethernet switch as a process. Hosts are network namespaces; frames between them may be delayed, lost or cut. Not
// every kernel has netem, and netem has no settings for pairs of hosts.
//
//   switch NAMESPACE...    gives each namespace a device eth0 with the address 02:00:00:00:00:N, N from 0
//
// Prints `ready`. Then it reads commands, one a line, answers each with `ok`, and ends at the end of input:
//   FROM TO DELAY JITTER LOSS    for frames of that pair: delay and random addition in microseconds, share lost from 0 to 1
// Frames of a pair never overtake each other. There is no broadcast: hosts know each other's addresses in advance.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_MAX = 32, FRAME_MAX = 1 << 16, WAITING_MAX = 64 << 20, TURN = 64 };

typedef struct frame {
  struct frame *next;
  uint64_t due;
  size_t length;
  unsigned char bytes[];
} frame;

typedef struct {
  uint64_t delay, jitter, last_due;
  double loss;
  frame *first, *last;
  size_t waiting; // bytes
} way;

static int devices[HOSTS_MAX], hosts;
static way ways[HOSTS_MAX][HOSTS_MAX];

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int make_device(const char *namespace) {
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", namespace);
  int there = open(path, O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) fail(path);
  close(there);
  int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request = {0};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  strcpy(request.ifr_name, "eth0");
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) fail("/dev/net/tun");
  return device;
}

// Frames that a device does not accept are lost, as with any switch.
static void deliver(int to, const void *bytes, size_t length) {
  if (write(devices[to], bytes, length) < 0 && errno != EAGAIN && errno != EIO) fail("write");
}

static void forward(int from, int to, const unsigned char *bytes, size_t length, uint64_t at) {
  way *way = &ways[from][to];
  if (way->loss > 0 && drand48() < way->loss) return;
  if (!way->delay && !way->jitter && !way->first) {
    deliver(to, bytes, length);
    return;
  }
  frame *frame = way->waiting > WAITING_MAX ? NULL : malloc(sizeof *frame + length);
  if (!frame) return;
  frame->next = NULL;
  frame->due = at + way->delay + (uint64_t)(drand48() * (double)way->jitter);
  if (frame->due < way->last_due) frame->due = way->last_due;
  way->last_due = frame->due;
  frame->length = length;
  memcpy(frame->bytes, bytes, length);
  if (way->last) way->last->next = frame; else way->first = frame;
  way->last = frame;
  way->waiting += length;
}

// Delivers frames that are due. Returns the time of the next one.
static uint64_t deliver_due(uint64_t at) {
  uint64_t next = at + 1000000000u;
  for (int from = 0; from < hosts; from++)
    for (int to = 0; to < hosts; to++) {
      way *way = &ways[from][to];
      while (way->first && way->first->due <= at) {
        frame *frame = way->first;
        way->first = frame->next;
        if (!way->first) way->last = NULL;
        way->waiting -= frame->length;
        deliver(to, frame->bytes, frame->length);
        free(frame);
      }
      if (way->first && way->first->due < next) next = way->first->due;
    }
  return next;
}

static void receive(int from, uint64_t at) {
  static unsigned char bytes[FRAME_MAX];
  for (int turn = 0; turn < TURN; turn++) {
    ssize_t length = read(devices[from], bytes, sizeof bytes);
    if (length < 14) return;
    int to = bytes[5];
    if (bytes[0] == 2 && to < hosts && to != from) forward(from, to, bytes, (size_t)length, at);
  }
}

// Reads commands. Returns whether there may be more.
static int listen_to_rules(void) {
  static char said[1 << 16];
  static size_t length;
  ssize_t more = read(STDIN_FILENO, said + length, sizeof said - 1 - length);
  if (more <= 0) return 0;
  length += (size_t)more;
  said[length] = 0;
  char *line = said;
  for (char *end; (end = strchr(line, '\n')); line = end + 1) {
    int from, to;
    double delay, jitter, loss;
    int is_rule = sscanf(line, "%d %d %lf %lf %lf", &from, &to, &delay, &jitter, &loss) == 5;
    if (!is_rule || from < 0 || from >= hosts || to < 0 || to >= hosts) {
      fprintf(stderr, "switch: no rule: %s", line);
      exit(2);
    }
    ways[from][to].delay = (uint64_t)(delay * 1000);
    ways[from][to].jitter = (uint64_t)(jitter * 1000);
    ways[from][to].loss = loss;
    puts("ok");
  }
  fflush(stdout);
  length = strlen(line);
  memmove(said, line, length);
  return 1;
}

int main(int count, char **arguments) {
  hosts = count - 1;
  if (hosts < 1 || hosts > HOSTS_MAX) {
    fprintf(stderr, "usage: switch NAMESPACE...; at most %d\n", HOSTS_MAX);
    return 2;
  }
  struct pollfd sources[HOSTS_MAX + 1];
  for (int host = 0; host < hosts; host++) {
    devices[host] = make_device(arguments[host + 1]);
    sources[host] = (struct pollfd){.fd = devices[host], .events = POLLIN};
  }
  sources[hosts] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
  // Without this the kernel may wake the process 50 microseconds late.
  prctl(PR_SET_TIMERSLACK, 1000ul);
  puts("ready");
  fflush(stdout);
  for (;;) {
    uint64_t at = now(), next = deliver_due(at);
    struct timespec left = {(time_t)((next - at) / 1000000000u), (long)((next - at) % 1000000000u)};
    if (ppoll(sources, (nfds_t)hosts + 1, &left, NULL) <= 0) continue;
    at = now();
    for (int host = 0; host < hosts; host++)
      if (sources[host].revents & POLLIN) receive(host, at);
    if (sources[hosts].revents && !listen_to_rules()) return 0;
  }
}
