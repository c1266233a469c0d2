/*
 * Compiles a profile with libseccomp, as OCI runtimes do. Reads lines from standard input:
 *   default ACTION
 *   arch TOKEN
 *   rule ACTION NAME [INDEX OP A B]...
 *   name NAME
 * Writes the program to the file that its argument names, and `NAME x86_64 x86` numbers of every name to standard output
 * (-1 where the ABI lacks it); names that libseccomp does not know are written alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, int error) {
    fprintf(stderr, "%s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static int number(uint32_t arch, const char *name) {
    int found = seccomp_syscall_resolve_name_arch(arch, name);
    return found < 0 ? -1 : found;
}

int main(int argc, char **argv) {
    static char line[4096];
    scmp_filter_ctx filter = NULL;
    int error, fd, x86 = 0;
    if (argc != 2) return 2;
    while (fgets(line, sizeof line, stdin)) {
        char *word = strtok(line, " \n");
        if (!strcmp(word, "default")) {
            filter = seccomp_init(strtoul(strtok(NULL, " \n"), NULL, 0));
            if (!filter) fail("default", EINVAL);
        } else if (!strcmp(word, "arch")) {
            error = seccomp_arch_add(filter, strtoul(strtok(NULL, " \n"), NULL, 0));
            if (error && error != -EEXIST) fail("arch", error);
            x86 = 1;
        } else {
            struct scmp_arg_cmp args[6];
            unsigned count = 0;
            int adds = !strcmp(word, "rule");
            uint32_t action = adds ? strtoul(strtok(NULL, " \n"), NULL, 0) : 0;
            char *name = strtok(NULL, " \n");
            int call = seccomp_syscall_resolve_name(name);
            if (call == __NR_SCMP_ERROR) {
                printf("%s\n", name);
                continue;
            }
            for (char *index; (index = strtok(NULL, " \n")) && count < 6; count++) {
                args[count].arg = strtoul(index, NULL, 0);
                args[count].op = strtoul(strtok(NULL, " \n"), NULL, 0);
                args[count].datum_a = strtoull(strtok(NULL, " \n"), NULL, 0);
                args[count].datum_b = strtoull(strtok(NULL, " \n"), NULL, 0);
            }
            /* Conditions on a call that none of the ABIs has are an error to libseccomp. */
            if (number(SCMP_ARCH_X86_64, name) < 0 && (!x86 || number(SCMP_ARCH_X86, name) < 0)) adds = 0;
            error = adds ? seccomp_rule_add_array(filter, action, call, count, args) : 0;
            if (error && error != -EEXIST) fail(name, error);
            printf("%s %d %d\n", name, number(SCMP_ARCH_X86_64, name), number(SCMP_ARCH_X86, name));
        }
    }
    fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) fail(argv[1], errno);
    error = seccomp_export_bpf(filter, fd);
    if (error) fail("export", error);
    return 0;
}
