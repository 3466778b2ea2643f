// This library shifts the wall clock of the server that loads it. The file TIMINGWHEEL_TEST_CLOCK
// contains the offset in nanoseconds, as a 64-bit number in native byte order. The file is mapped, so
// a write to the file sets the clock immediately. The code allocates nothing and looks up no symbols:
// an allocator that reads the clock during its initialization would call the library recursively.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("TIMINGWHEEL_TEST_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		_exit(97);
	void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		_exit(98);
	close(file);
	offset = mapped;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = (int)syscall(SYS_clock_gettime, id, t);
	if (failed || !offset || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return failed;
	const int64_t second = 1000000000;
	int64_t shift = __atomic_load_n(offset, __ATOMIC_SEQ_CST);
	int64_t nanoseconds = t->tv_nsec + shift % second;
	t->tv_sec += shift / second + (nanoseconds >= second) - (nanoseconds < 0);
	t->tv_nsec = (nanoseconds + second) % second;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return failed;
}

time_t time(time_t *t) {
	struct timespec now = {0};
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}
