// Makes reads of files under one folder slow, as a far or busy disk does: preloaded into the planted scripts.
//
// SLOWREAD_PREFIX      files under this folder
// SLOWREAD_OPEN_US     microseconds an open takes
// SLOWREAD_READ_US     microseconds a read that returns data takes
// SLOWREAD_RATE        bytes a second, shared by all processes that map SLOWREAD_STATE
// SLOWREAD_STATE       file of 8 bytes: when the disk is free again, in ns of CLOCK_MONOTONIC
//
// Bytes are never changed. The wait is not interruptible (a signal is handled after it), like that for a disk.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#undef open
#undef open64
#undef openat
#undef openat64
#undef pread
#undef pread64

#define FDS 65536
static _Atomic unsigned char slow[FDS];
static char prefix[PATH_MAX];
static size_t prefix_length;
static long open_ns, read_ns;
static double rate;
static _Atomic int64_t own_state;
static _Atomic int64_t *state = &own_state;

#define REAL(name) ((__typeof__(&name))real(&real_##name, #name))
static void *real_open, *real_open64, *real_openat, *real_openat64, *real_read, *real_pread, *real_pread64, *real_close;

static void *real(void **place, const char *name) {
    if (!*place) *place = dlsym(RTLD_NEXT, name);
    return *place;
}

static double number(const char *name) {
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("SLOWREAD_PREFIX");
    if (!folder || strlen(folder) >= sizeof prefix) return;
    open_ns = (long)(number("SLOWREAD_OPEN_US") * 1e3);
    read_ns = (long)(number("SLOWREAD_READ_US") * 1e3);
    rate = number("SLOWREAD_RATE");
    const char *path = getenv("SLOWREAD_STATE");
    if (path) {
        int fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            void *map = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (map != MAP_FAILED) state = map;
            REAL(close)(fd);
        }
    }
    strcpy(prefix, folder);
    prefix_length = strlen(prefix);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void wait_until(int64_t end) {
    int before = errno;
    struct timespec t = {end / 1000000000, end % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    errno = before;
}

static int opened(int fd, const char *path) {
    if (fd < 0 || fd >= FDS) return fd;
    int ours = prefix_length && strncmp(path, prefix, prefix_length) == 0;
    slow[fd] = ours;
    if (ours && open_ns) wait_until(now() + open_ns);
    return fd;
}

static ssize_t have_read(int fd, ssize_t bytes) {
    if (bytes <= 0 || fd < 0 || fd >= FDS || !slow[fd]) return bytes;
    int64_t end = now() + read_ns;
    if (rate > 0) {
        int64_t cost = (int64_t)(bytes / rate * 1e9), before = *state, after;
        do {
            int64_t from = now();
            after = (before > from ? before : from) + cost;
        } while (!atomic_compare_exchange_weak(state, &before, after));
        if (after > end) end = after;
    }
    wait_until(end);
    return bytes;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opened(REAL(open)(path, flags, mode), path); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(REAL(open64)(path, flags, mode), path); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat)(at, path, flags, mode), path); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat64)(at, path, flags, mode), path); }
ssize_t read(int fd, void *to, size_t n) { return have_read(fd, REAL(read)(fd, to, n)); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return have_read(fd, REAL(pread)(fd, to, n, at)); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return have_read(fd, REAL(pread64)(fd, to, n, at)); }

int close(int fd) {
    if (fd >= 0 && fd < FDS) slow[fd] = 0;
    return REAL(close)(fd);
}
