/* A slower device for a server: LD_PRELOAD library that sleeps before each sync or each read of a block.
 *
 * SLOW_SYNC_US: before fsync and fdatasync. SLOW_READ_US: before reads of 8 KiB, as if no page cache existed.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long sync_us, read_us;

__attribute__((constructor)) static void begin(void) {
    const char *sync = getenv("SLOW_SYNC_US"), *read = getenv("SLOW_READ_US");
    sync_us = sync ? atol(sync) : 0;
    read_us = read ? atol(read) : 0;
}

static void pause_us(long us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&left, &left) != 0)
        ;
}

int fdatasync(int fd) {
    pause_us(sync_us);
    return syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    pause_us(sync_us);
    return syscall(SYS_fsync, fd);
}

ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset) {
    if (size == 8192)
        pause_us(read_us);
    return syscall(SYS_pread64, fd, buffer, size, offset);
}

ssize_t pread(int fd, void *buffer, size_t size, off_t offset) { return pread64(fd, buffer, size, offset); }
