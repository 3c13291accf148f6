/* What NVIDIA's guide says of gdsio's transfer type 0: threads with cuFileRead into a registered
 * buffer of their own. CUFILE_ENV_PATH_JSON configures it; PEER_STATISTICS=3 switches on cuFile's
 * statistics of that level, to tell what they cost. */
#include "driver.h"

typedef struct {
    int code, cuda_code;
} status;

typedef struct {
    int type;
    union {
        int fd;
        void *pointer;
    } handle;
    const void *operations;
} description;

static struct {
    status (*open)(void);
    status (*register_handle)(void **, description *);
    status (*register_buffer)(const void *, size_t, int);
    ssize_t (*read)(void *, void *, size_t, off_t, off_t);
    status (*level)(int);
} cufile;

static void setup(void) {
    void *library = library_of("libcufile.so.0");
    cufile.open = function_of(library, "cuFileDriverOpen");
    cufile.register_handle = function_of(library, "cuFileHandleRegister");
    cufile.register_buffer = function_of(library, "cuFileBufRegister");
    cufile.read = function_of(library, "cuFileRead");
    const char *level = getenv("PEER_STATISTICS");
    cufile.level = function_of(library, "cuFileSetStatsLevel");
    check(cufile.level(level ? atoi(level) : 0).code, "cuFileSetStatsLevel");
    check(cufile.open().code, "cuFileDriverOpen");
}

static void prepare(reader *self) {
    self->fd = open(self->path, O_RDONLY | O_DIRECT);
    if (self->fd < 0)
        die(self->path, errno);
    description file = {.type = 1, .handle.fd = self->fd};
    check(cufile.register_handle(&self->handle, &file).code, "cuFileHandleRegister");
    check(cuda.allocate(&self->memory, self->block_bytes), "cuMemAlloc");
    check(cufile.register_buffer((void *)(uintptr_t)self->memory, self->block_bytes, 0).code,
          "cuFileBufRegister");
}

static ssize_t read_block(reader *self, off_t offset) {
    return cufile.read(self->handle, (void *)(uintptr_t)self->memory, self->block_bytes, offset, 0);
}

int main(int count, char **arguments) {
    return run_peer(count, arguments, setup);
}
