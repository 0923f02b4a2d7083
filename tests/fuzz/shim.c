/* Fail one operation on the files of a folder: the process is killed in it, or the disk is full from
 * it on. Preloaded by faults.py, which arms it; operations are numbered from 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FDS = 65536, FULL = 1, KILL = 2 };
static char folder[4096];
static long at, count;
static int mode;
static char ours[FDS];

void fault_arm(const char *where, long number, int how) {
    strncpy(folder, where, sizeof folder - 1);
    at = number, mode = how, count = 0;
}

long fault_count(void) { return count; }

static int within(const char *path) {
    return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0;
}

/* Count an operation; return whether it fails because the disk is full. */
static int fails(void) {
    count++;
    if (mode == KILL && count == at) kill(getpid(), SIGKILL);
    if (mode == FULL && at && count >= at) return errno = ENOSPC, 1;
    return 0;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int opened(const char *name, int dir, const char *path, int flags, mode_t bits) {
    int writes = within(path) && (flags & (O_WRONLY | O_RDWR | O_CREAT));
    if (writes && fails()) return -1;
    int fd = dir == -2 ? ((int (*)(const char *, int, mode_t))real(name))(path, flags, bits)
                       : ((int (*)(int, const char *, int, mode_t))real(name))(dir, path, flags, bits);
    if (fd >= 0 && fd < FDS) ours[fd] = within(path);
    return fd;
}

#define BITS                               \
    va_list rest;                          \
    va_start(rest, flags);                 \
    mode_t bits = va_arg(rest, mode_t);    \
    va_end(rest);

int open(const char *path, int flags, ...) { BITS return opened("open", -2, path, flags, bits); }
int open64(const char *path, int flags, ...) { BITS return opened("open64", -2, path, flags, bits); }
int openat(int dir, const char *path, int flags, ...) {
    BITS return opened("openat", dir, path, flags, bits);
}
int openat64(int dir, const char *path, int flags, ...) {
    BITS return opened("openat64", dir, path, flags, bits);
}

static int tracked(int fd) { return fd >= 0 && fd < FDS && ours[fd]; }

/* Half of what is written arrives before the process is killed. */
#define WRITES(name, declared, given, half)                             \
    ssize_t name declared {                                             \
        ssize_t(*go) declared = real(#name);                            \
        if (tracked(fd)) {                                              \
            if (mode == KILL && count + 1 == at) (void)!go half;        \
            if (fails()) return -1;                                     \
        }                                                               \
        return go given;                                                \
    }

WRITES(write, (int fd, const void *from, size_t size), (fd, from, size), (fd, from, size / 2))
WRITES(pwrite, (int fd, const void *from, size_t size, off_t to), (fd, from, size, to),
       (fd, from, size / 2, to))
WRITES(pwrite64, (int fd, const void *from, size_t size, off64_t to), (fd, from, size, to),
       (fd, from, size / 2, to))
WRITES(writev, (int fd, const struct iovec *from, int size), (fd, from, size), (fd, from, size / 2))

int fsync(int fd) { return tracked(fd) && fails() ? -1 : ((int (*)(int))real("fsync"))(fd); }
int fdatasync(int fd) { return tracked(fd) && fails() ? -1 : ((int (*)(int))real("fdatasync"))(fd); }
int rename(const char *from, const char *to) {
    if (within(to) && fails()) return -1;
    return ((int (*)(const char *, const char *))real("rename"))(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    if (within(to) && fails()) return -1;
    return ((int (*)(int, const char *, int, const char *))real("renameat"))(a, from, b, to);
}
