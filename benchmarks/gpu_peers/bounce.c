/* What NVIDIA's guide says of gdsio's transfer type 2: threads that read with O_DIRECT into pinned
 * host memory, copy to the GPU on a stream of their own, and wait. */
#include "driver.h"

static void prepare(reader *self) {
    self->fd = open(self->path, O_RDONLY | O_DIRECT);
    if (self->fd < 0)
        die(self->path, errno);
    if (posix_memalign((void **)&self->host, 4096, self->block_bytes))
        die("posix_memalign", errno);
    memset(self->host, 0, self->block_bytes);
    check(cuda.pin(self->host, self->block_bytes, 0), "cuMemHostRegister");
    check(cuda.allocate(&self->memory, self->block_bytes), "cuMemAlloc");
    check(cuda.stream_create(&self->stream, 1), "cuStreamCreate"); /* non-blocking */
}

static ssize_t read_block(reader *self, off_t offset) {
    ssize_t done = pread(self->fd, self->host, self->block_bytes, offset);
    if (done <= 0)
        return -1;
    if (cuda.copy(self->memory, self->host, (size_t)done, self->stream) ||
        cuda.stream_wait(self->stream))
        return -1;
    return done;
}

int main(int count, char **arguments) {
    return run_peer(count, arguments, NULL);
}
