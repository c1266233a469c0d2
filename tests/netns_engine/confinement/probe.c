/* Prints everything that confines this process, one "key value" line each, then "end", and sleeps. As a command in a
 * container, with --command, it prints what does not depend on how it was started, and exits. Linked statically: images need
 * nothing for it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

static void lines(const char *key, const char *path, const char *const *only) {
    FILE *file = fopen(path, "r");
    char line[8192];
    if (!file) {
        printf("%s errno=%d\n", key, errno);
        return;
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        int wanted = !only;
        for (const char *const *at = only; at && *at; at++) wanted |= !strncmp(line, *at, strlen(*at));
        if (wanted) printf("%s %s\n", key, line);
    }
    fclose(file);
}

static void ids(void) {
    uid_t r, e, s;
    gid_t groups[256];
    getresuid(&r, &e, &s);
    printf("uid %u %u %u\n", r, e, s);
    getresgid(&r, &e, &s);
    printf("gid %u %u %u\n", r, e, s);
    int count = getgroups(256, groups);
    printf("groups");
    for (int i = 0; i < count; i++) printf(" %u", groups[i]);
    printf("\numask %o\n", umask(0));
}

static void attributes(void) {
    static const int options[] = {PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_SECUREBITS, PR_GET_NO_NEW_PRIVS,
                                  PR_GET_TIMERSLACK, PR_GET_THP_DISABLE, PR_MCE_KILL_GET, PR_GET_IO_FLUSHER};
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++)
        printf("prctl %d %d\n", options[i], prctl(options[i], 0, 0, 0, 0));
    int value = 0;
    prctl(PR_GET_PDEATHSIG, &value);
    printf("pdeathsig %d\n", value);
    value = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &value);
    printf("subreaper %d\n", value);
    printf("personality %x\nsecure %lu\n", personality(0xffffffff), getauxval(AT_SECURE));
    printf("priority %d scheduler %d io %ld\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
           syscall(SYS_ioprio_get, 1, 0));
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("cpus %d\n", CPU_COUNT(&cpus));
    printf("leader session=%d group=%d\n", getsid(0) == getpid(), getpgid(0) == getpid());
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        printf("rlimit %d %llx %llx\n", i, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
    static const char *const status[] = {"Cap", "NoNewPrivs", "Seccomp:", "Seccomp_filters", "SigPnd", "SigBlk",
                                         "SigIgn", "SigCgt", "Shd",
                                         "Speculation_Store", "Cpus_allowed_list", 0};
    lines("status", "/proc/self/status", status);
    lines("oom", "/proc/self/oom_score_adj", 0);
    lines("uid_map", "/proc/self/uid_map", 0);
    lines("gid_map", "/proc/self/gid_map", 0);
    lines("setgroups", "/proc/self/setgroups", 0);
    lines("cgroup", "/proc/self/cgroup", 0);
    lines("label", "/proc/self/attr/current", 0);
    lines("timens", "/proc/self/timens_offsets", 0);
    lines("coredump", "/proc/self/coredump_filter", 0);
}

/* The session keyring: name, permissions, owner. */
static void keyring(void) {
    char text[256] = "";
    long length = syscall(SYS_keyctl, 6 /* describe */, -3 /* session */, text, sizeof text - 1);
    if (length < 0)
        printf("keyring errno=%d\n", errno);
    else
        printf("keyring %s\n", text);
}

static void own(int argc, char **argv) {
    char path[4096] = "";
    printf("args");
    for (int i = 0; i < argc; i++) printf(" %s", argv[i]);
    printf("\n");
    for (char **at = environ; *at; at++) printf("env %s\n", *at);
    if (getcwd(path, sizeof path)) printf("cwd %s\n", path);
    memset(path, 0, sizeof path);
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) printf("exe %s\n", path);
    for (int fd = 0; fd < 256; fd++) {
        struct stat st;
        if (fstat(fd, &st)) continue;
        printf("fd %d mode=%o uid=%u gid=%u flags=%x cloexec=%d tty=%d\n", fd, st.st_mode, st.st_uid, st.st_gid,
               fcntl(fd, F_GETFL), fcntl(fd, F_GETFD), isatty(fd));
    }
    if (isatty(0)) {
        struct winsize size;
        ioctl(0, TIOCGWINSZ, &size);
        printf("terminal %s %ux%u foreground=%d\n", ttyname(0) ? ttyname(0) : "?", size.ws_col, size.ws_row,
               tcgetpgrp(0) == getpgid(0));
        int again = open("/dev/tty", O_RDWR);
        printf("controlling %d\n", again >= 0 ? 0 : errno);
    }
}

/* Mounts without numbers that differ from mount to mount. */
static void mounts(void) {
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[8192];
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *at = line, *fields[64];
        int count = 0;
        while ((at = strtok(count ? NULL : line, " ")) && count < 64) fields[count++] = at;
        if (count < 9) continue;
        printf("mount %s %s %s", fields[4], fields[3], fields[5]);
        int i = 6;
        for (; i < count && strcmp(fields[i], "-"); i++) {
            fields[i][strcspn(fields[i], ":")] = 0;
            printf(" %s", fields[i]);
        }
        for (; i < count; i++) printf(" %s", fields[i]);
        printf("\n");
    }
    if (file) fclose(file);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* The entries of a directory, with types, owners and devices. */
static void directory(const char *key, const char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, 0, by_name);
    if (count < 0) {
        printf("%s %s errno=%d\n", key, path, errno);
        return;
    }
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        char full[4096], target[4096] = "";
        struct stat st;
        snprintf(full, sizeof full, "%s/%s", path, name);
        if (lstat(full, &st)) continue;
        if (S_ISLNK(st.st_mode)) readlink(full, target, sizeof target - 1);
        printf("%s %s mode=%o uid=%u gid=%u device=%u:%u %s\n", key, full, st.st_mode, st.st_uid, st.st_gid,
               major(st.st_rdev), minor(st.st_rdev), target);
    }
}

/* What usual hidden and read-only places answer. */
static void places(void) {
    static const char *const paths[] = {"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
        "/proc/sched_debug", "/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/firmware", "/proc/bus", "/proc/fs",
        "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/interrupts", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm",
        "/dev/mqueue", "/dev/pts", "/", "/proc", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname",
        "/sys/devices/virtual/powercap"};
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat st;
        struct statfs fs;
        if (stat(paths[i], &st)) {
            printf("place %s errno=%d\n", paths[i], errno);
            continue;
        }
        statfs(paths[i], &fs);
        int fd = open(paths[i], O_RDONLY | O_NONBLOCK);
        int read_errno = fd < 0 ? errno : 0;
        if (fd >= 0) close(fd);
        printf("place %s mode=%o uid=%u gid=%u device=%u:%u type=%lx flags=%lx read=%d write=%d\n", paths[i], st.st_mode,
               st.st_uid, st.st_gid, major(st.st_rdev), minor(st.st_rdev), (long)fs.f_type, (long)fs.f_flags, read_errno,
               access(paths[i], W_OK) ? errno : 0);
    }
}

/* Which devices can be made and opened. */
static void devices(void) {
    static const struct { mode_t kind; int major, minor; } all[] = {
        {S_IFCHR, 1, 1}, {S_IFCHR, 1, 3}, {S_IFCHR, 1, 5}, {S_IFCHR, 1, 7}, {S_IFCHR, 1, 8}, {S_IFCHR, 1, 9}, {S_IFCHR, 1, 11},
        {S_IFCHR, 4, 64}, {S_IFCHR, 5, 0}, {S_IFCHR, 5, 1}, {S_IFCHR, 5, 2}, {S_IFCHR, 10, 200}, {S_IFCHR, 10, 229},
        {S_IFCHR, 10, 237}, {S_IFBLK, 7, 0}, {S_IFBLK, 254, 0}, {S_IFBLK, 259, 0}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        const char *path = "/dev/probe";
        printf("device %c %d:%d", all[i].kind == S_IFCHR ? 'c' : 'b', all[i].major, all[i].minor);
        if (mknod(path, all[i].kind | 0666, makedev(all[i].major, all[i].minor))) {
            printf(" mknod=%d\n", errno);
            continue;
        }
        static const int modes[] = {O_RDONLY, O_WRONLY};
        for (int m = 0; m < 2; m++) {
            int fd = open(path, modes[m] | O_NONBLOCK | O_NOCTTY);
            printf(" %d", fd < 0 ? errno : 0);
            if (fd >= 0) close(fd);
        }
        printf("\n");
        unlink(path);
    }
}

/* The verdict on every system call: arguments that no call accepts, so that an allowed one does nothing. */
static void calls(void) {
    /* These would end, block or copy the process, write back all disks, or leave a message queue behind. */
    static const int skipped[] = {SYS_exit, SYS_exit_group, SYS_pause, SYS_clone, SYS_sync, SYS_vhangup, SYS_rt_sigreturn,
        SYS_msgget,
#ifdef SYS_fork
        SYS_fork, SYS_vfork,
#endif
    };
    for (int number = 0; number < 480; number++) {
        int skip = 0;
        for (unsigned i = 0; i < sizeof skipped / sizeof *skipped; i++) skip |= skipped[i] == number;
        if (skip) continue;
        int report[2];
        if (pipe(report)) return;
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            alarm(2);
            errno = 0;
            long result = syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
            int verdict = result == -1 ? errno : 0;
            if (syscall(SYS_write, report[1], &verdict, sizeof verdict) < 0) _exit(1);
            _exit(0);
        }
        close(report[1]);
        int verdict = -1, status = 0;
        if (read(report[0], &verdict, sizeof verdict) != sizeof verdict) verdict = -1;
        close(report[0]);
        waitpid(child, &status, 0);
        printf("call %d %d %d\n", number, verdict, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    static const struct { const char *name; int flags; } spaces[] = {{"user", CLONE_NEWUSER}, {"mount", CLONE_NEWNS},
        {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID}};
    for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        fflush(stdout);
        long child = syscall(SYS_clone, spaces[i].flags | SIGCHLD, 0, 0, 0, 0);
        if (!child) _exit(0);
        printf("clone %s %d\n", spaces[i].name, child < 0 ? errno : 0);
        if (child > 0) waitpid(child, NULL, 0);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--command")) {
        ids();
        attributes();
        keyring();
        devices();
        calls();
        return 0;
    }
    own(argc, argv);
    ids();
    attributes();
    keyring();
    mounts();
    directory("dev", "/dev");
    directory("root", "/");
    directory("here", ".");
    places();
    devices();
    calls();
    printf("end\n");
    fflush(stdout);
    for (;;) pause();
}
