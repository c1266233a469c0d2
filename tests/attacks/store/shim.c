// Preloaded into a server: fails writes and syncs of files of its store as a control file says ("w28 s5": writes end with
// ENOSPC, syncs with EIO). Half of a write happens before it fails, as on a disk that gets full.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int wanted(int fd, char what) {
    const char *control = getenv("SHIM_CONTROL");
    char name[64], path[4096], text[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = control ? readlink(name, path, sizeof path - 1) : -1;
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/store/") && !(length > 6 && !strcmp(path + length - 6, "/store"))) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (length <= 0) return 0;
    text[length] = 0;
    char *at = strchr(text, what);
    return at ? atoi(at + 1) : 0;
}

static __thread int halved;

// How much of a write happens; -1 when it fails.
static ssize_t part(int fd, size_t length) {
    int error = wanted(fd, 'w');
    if (!error) return length;
    halved = !halved && length > 1;
    if (halved) return length / 2;
    errno = error;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    ssize_t some = part(fd, length);
    return some < 0 ? -1 : syscall(SYS_write, fd, bytes, (size_t)some);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) {
    ssize_t some = part(fd, length);
    return some < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, (size_t)some, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

static int synced(int fd, long call) {
    int error = wanted(fd, 's');
    if (!error) return syscall(call, fd);
    errno = error;
    return -1;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
