// Times of the turns of event loops, in CPU time: from the return of epoll_wait to its next call, by thread. Preloaded
// into a process (LD_PRELOAD); counts are in shared files TURNS_DIR/<pid>-<tid>, which a reader may set to zero.
// Layout: 64 counters of 8 bytes, of turns of less than 2^n microseconds; then of the longest turn: nanoseconds, and of
// it those in recv and in send; bytes received and sent.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct turn {
	uint64_t ns, recv_ns, send_ns, recv_bytes, send_bytes;
};

struct counts {
	uint64_t below[64];
	struct turn longest;
};

static int (*real_wait)(int, struct epoll_event *, int, int);
static __thread struct counts *mine;
static __thread uint64_t began_ns;
static __thread struct turn now;

static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static struct counts *file_of_thread(void)
{
	static struct counts none;
	const char *directory = getenv("TURNS_DIR");
	char path[4096];
	if (!directory)
		return &none;
	snprintf(path, sizeof path, "%s/%d-%ld", directory, (int)getpid(), (long)syscall(SYS_gettid));
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof none) < 0)
		return &none;
	void *shared = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return shared == MAP_FAILED ? &none : shared;
}

static void turn_ends(void)
{
	if (!mine)
		mine = file_of_thread();
	if (began_ns) {
		uint64_t took = cpu_ns() - began_ns;
		int n = 0;
		while (n < 63 && took >= (UINT64_C(1000) << n))
			n++;
		mine->below[n]++;
		now.ns = took;
		if (took > mine->longest.ns)
			mine->longest = now;
	}
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	static ssize_t (*real)(int, void *, size_t, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "recv");
	uint64_t began = cpu_ns();
	ssize_t count = real(fd, bytes, length, flags);
	now.recv_ns += cpu_ns() - began;
	now.recv_bytes += count > 0 ? count : 0;
	return count;
}

static ssize_t sent(uint64_t began, ssize_t count)
{
	now.send_ns += cpu_ns() - began;
	now.send_bytes += count > 0 ? count : 0;
	return count;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	static ssize_t (*real)(int, const void *, size_t, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "send");
	uint64_t began = cpu_ns();
	return sent(began, real(fd, bytes, length, flags));
}

ssize_t writev(int fd, const struct iovec *all, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "writev");
	uint64_t began = cpu_ns();
	return sent(began, real(fd, all, count));
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	if (!real_wait)
		real_wait = dlsym(RTLD_NEXT, "epoll_wait");
	turn_ends();
	int count = real_wait(fd, events, max, timeout);
	now = (struct turn){0};
	began_ns = cpu_ns();
	return count;
}
