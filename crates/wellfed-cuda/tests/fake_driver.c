/* A CUDA driver without a device: what the loader, the ring and error paths are tested with.
 *
 * It has the driver's functions that src/driver.rs names. Device memory is the host's; kernels are those of the host,
 * found by their names; work is done when it is submitted, or, with `defer`, only when somebody waits for it or asks
 * for it, one operation a question, so that a missing wait gives wrong data. Memory is filled with 0xCD before its
 * first use and with 0xDD after its last. What a device would not forgive is an error: calls without a current
 * context, handles that were destroyed, copies beyond an allocation.
 *
 *     cc -shared -fPIC -ffp-contract=off -o libcuda.so fake_driver.c -ldl -lpthread -lm
 *     WELLFED_CUDA_DRIVER=./libcuda.so ...
 *
 * Settings, in WELLFED_FAKE as `name=value,...`, or by fake_set(name, value):
 *     devices, version (12000), capability (90), memory (bytes of each device), pools (0: no cuMemAllocAsync), jit (0: no
 *     PTX can be compiled), defer,
 *     fail.CALL=N:CODE (the Nth call from now on returns CODE; CALL `execute` is an operation that a stream runs, and
 *     its error is then returned by all calls, as a device's are).
 * To look at: fake_alive() (all that was made and not destroyed), fake_bytes() (of device and pinned memory),
 * fake_calls(CALL), fake_waiting() (operations submitted and not run).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../kernels/host.c"

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
};

static const struct {
    u32 code;
    const char *name, *text;
} codes[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

enum { DEVICES = 8, FAILURES = 32, CALLS = 64, HOST = DEVICES };

enum kind { MEMORY, PINNED, STREAM, EVENT, MODULE, REGISTERED };

struct operation {
    enum { COPY, SET, LAUNCH, FREE, RECORD, WAIT } kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    const struct wellfed_kernel *kernel;
    u32 grid[3];
    struct object *other; /* the event that is recorded, or the stream that is waited for */
    u64 at;               /* the operation of it that is waited for */
    struct operation *next;
};

/* Whatever has a handle. Those that were destroyed stay, so that their handles are known to be stale. */
struct object {
    enum kind kind;
    int alive, device;
    u8 *memory;
    size_t bytes;
    struct operation *first, **last; /* of a stream: what it has to run */
    u64 submitted, done;
    struct object *stream; /* of an event: where it was recorded, as which operation, when that ran */
    u64 at;
    double time;
    char *image; /* of a module */
    struct object *next;
};

struct call {
    const char *name;
    u64 count;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static struct object defaults[DEVICES]; /* the default streams */
static struct call calls[CALLS];
static struct {
    char call[40];
    long long left;
    u32 code;
} failures[FAILURES];
static long long devices = 2, version = 12000, capability = 90, memory = 1ll << 30, pools = 1, jit = 1,
                 defer = 0;
static size_t used[DEVICES + 1];
static int initialized, retained[DEVICES], configured;
static u32 sticky;

/* Contexts of devices, by number from 1; the stack of those that are current in a thread. */
static _Thread_local int stack[16];
static _Thread_local int depth;

static void set(const char *name, const char *value)
{
    long long number = atoll(value);
    if (!strncmp(name, "fail.", 5)) {
        const char *colon = strchr(value, ':');
        for (int i = 0; i < FAILURES; ++i)
            if (failures[i].left == 0) {
                snprintf(failures[i].call, sizeof failures[i].call, "%s", name + 5);
                failures[i].left = number;
                failures[i].code = colon ? (u32)atoi(colon + 1) : 1;
                return;
            }
        abort();
    }
    if (!strcmp(name, "devices"))
        devices = number;
    else if (!strcmp(name, "version"))
        version = number;
    else if (!strcmp(name, "capability"))
        capability = number;
    else if (!strcmp(name, "memory"))
        memory = number;
    else if (!strcmp(name, "pools"))
        pools = number;
    else if (!strcmp(name, "jit"))
        jit = number;
    else if (!strcmp(name, "defer"))
        defer = number;
    else {
        fprintf(stderr, "fake driver: there is no setting %s\n", name);
        abort();
    }
}

static void configure(void)
{
    const char *settings = getenv("WELLFED_FAKE");
    char *copy, *part, *rest;
    if (configured++ || !settings)
        return;
    copy = strdup(settings);
    for (part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(part, '=');
        if (value)
            *value++ = 0;
        set(part, value ? value : "1");
    }
    free(copy);
}

static u32 failure(const char *name)
{
    for (int i = 0; i < FAILURES; ++i)
        if (failures[i].left > 0 && !strcmp(failures[i].call, name) && --failures[i].left == 0)
            return failures[i].code;
    return 0;
}

/* Begins a call: counts it, and says how it fails. */
static u32 begin(const char *name)
{
    u32 code;
    pthread_mutex_lock(&mutex);
    configure();
    for (int i = 0; i < CALLS; ++i)
        if (!calls[i].name || !strcmp(calls[i].name, name)) {
            calls[i].name = name;
            ++calls[i].count;
            break;
        }
    code = failure(name);
    return code ? code : sticky;
}

static u32 end(u32 code)
{
    pthread_mutex_unlock(&mutex);
    return code;
}

#define BEGIN                       \
    do {                            \
        u32 code = begin(__func__); \
        if (code)                   \
            return end(code);       \
    } while (0)
#define BEGIN_WITH_CONTEXT                  \
    BEGIN;                                  \
    if (!depth || !retained[current()])     \
    return end(INVALID_CONTEXT)

static int current(void)
{
    return stack[depth - 1] - 1;
}

static struct object *make(enum kind kind, int device)
{
    struct object *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->alive = 1;
    made->device = device;
    made->last = &made->first;
    made->next = objects;
    return objects = made;
}

static struct object *find(u64 handle, enum kind kind)
{
    for (struct object *at = objects; at; at = at->next)
        if ((u64)(uintptr_t)at == handle)
            return at->alive && at->kind == kind ? at : NULL;
    return NULL;
}

/* The stream of a handle: 0 to 2 are the default ones. */
static struct object *find_stream(u64 handle)
{
    struct object *stream = &defaults[current()];
    if (handle > 2)
        return find(handle, STREAM);
    if (!stream->last)
        stream->last = &stream->first;
    return stream;
}

/* The memory of the device in which all of these bytes lie. */
static struct object *holder(u64 pointer, size_t bytes)
{
    for (struct object *at = objects; at; at = at->next) {
        u64 start = (u64)(uintptr_t)at->memory;
        if (at->alive && at->kind == MEMORY && pointer >= start && pointer + bytes <= start + at->bytes)
            return at;
    }
    return NULL;
}

static u32 allocate(enum kind kind, size_t bytes, struct object **made)
{
    int device = kind == PINNED ? HOST : current();
    if (!bytes)
        return INVALID_VALUE;
    if (kind == MEMORY && (long long)(used[device] + bytes) > memory)
        return OUT_OF_MEMORY;
    *made = make(kind, device);
    (*made)->bytes = bytes;
    if (posix_memalign((void **)&(*made)->memory, 256, bytes))
        abort();
    memset((*made)->memory, 0xCD, bytes);
    used[device] += bytes;
    return 0;
}

static u32 release(struct object *object)
{
    if (!object || !object->alive)
        return INVALID_VALUE;
    memset(object->memory, 0xDD, object->bytes);
    free(object->memory);
    object->memory = NULL;
    object->alive = 0;
    used[object->device] -= object->bytes;
    return 0;
}

static struct object *by_address(u64 pointer, enum kind kind)
{
    for (struct object *at = objects; at; at = at->next)
        if (at->alive && at->kind == kind && (u64)(uintptr_t)at->memory == pointer)
            return at;
    return NULL;
}

static void run_until(struct object *stream, u64 at);

static void execute(struct object *stream, struct operation *todo)
{
    struct timespec now;
    u32 code = failure("execute");
    if (code)
        sticky = code;
    if (todo->kind == WAIT)
        run_until(todo->other, todo->at);
    else if (todo->kind == RECORD) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        todo->other->time = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    } else if (!sticky) {
        if (todo->kind == COPY)
            memcpy(todo->to, todo->from, todo->bytes);
        else if (todo->kind == SET)
            memset(todo->to, todo->value, todo->bytes);
        else if (todo->kind == LAUNCH)
            todo->kernel->launch(todo->from, todo->grid[0], todo->grid[1], todo->grid[2]);
    }
    if (todo->kind == FREE)
        release(todo->other);
    if (todo->kind == LAUNCH)
        free((void *)todo->from);
    ++stream->done;
}

static void run_until(struct object *stream, u64 at)
{
    while (stream->done < at && stream->first) {
        struct operation *todo = stream->first;
        stream->first = todo->next;
        if (!stream->first)
            stream->last = &stream->first;
        execute(stream, todo);
        free(todo);
    }
}

static void run_all(void)
{
    for (int i = 0; i < DEVICES; ++i)
        run_until(&defaults[i], defaults[i].submitted);
    for (struct object *at = objects; at; at = at->next)
        if (at->kind == STREAM)
            run_until(at, at->submitted);
}

static u32 submit(struct object *stream, struct operation todo)
{
    struct operation *made = malloc(sizeof *made);
    *made = todo;
    made->next = NULL;
    *stream->last = made;
    stream->last = &made->next;
    ++stream->submitted;
    if (!defer)
        run_until(stream, stream->submitted);
    return 0;
}

/* --- What tests call. --- */

void fake_set(const char *name, const char *value)
{
    pthread_mutex_lock(&mutex);
    configure();
    set(name, value);
    pthread_mutex_unlock(&mutex);
}

u64 fake_alive(void)
{
    u64 count = 0;
    pthread_mutex_lock(&mutex);
    for (struct object *at = objects; at; at = at->next)
        count += (u64)at->alive;
    for (int i = 0; i < DEVICES; ++i)
        count += (u64)retained[i];
    pthread_mutex_unlock(&mutex);
    return count;
}

u64 fake_bytes(void)
{
    u64 bytes = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i <= HOST; ++i)
        bytes += used[i];
    pthread_mutex_unlock(&mutex);
    return bytes;
}

u64 fake_calls(const char *name)
{
    u64 count = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < CALLS && calls[i].name; ++i)
        if (!strcmp(calls[i].name, name))
            count = calls[i].count;
    pthread_mutex_unlock(&mutex);
    return count;
}

u64 fake_waiting(void)
{
    u64 count = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < DEVICES; ++i)
        count += defaults[i].submitted - defaults[i].done;
    for (struct object *at = objects; at; at = at->next)
        if (at->kind == STREAM)
            count += at->submitted - at->done;
    pthread_mutex_unlock(&mutex);
    return count;
}

/* --- The driver's functions. --- */

u32 cuInit(u32 flags)
{
    BEGIN;
    if (flags)
        return end(INVALID_VALUE);
    if (!devices)
        return end(NO_DEVICE);
    initialized = 1;
    return end(0);
}

u32 cuDriverGetVersion(int *value)
{
    BEGIN;
    *value = (int)version;
    return end(0);
}

u32 cuDeviceGetCount(int *count)
{
    BEGIN;
    *count = (int)devices;
    return end(initialized ? 0 : NOT_INITIALIZED);
}

u32 cuDeviceGet(int *device, int ordinal)
{
    BEGIN;
    *device = ordinal;
    return end(ordinal < 0 || ordinal >= devices ? INVALID_DEVICE : 0);
}

u32 cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN;
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return end(0);
}

u32 cuDeviceGetAttribute(int *value, u32 attribute, int device)
{
    BEGIN;
    (void)device;
    switch (attribute) {
    case 16: *value = 4; break;
    case 40: *value = 2; break;
    case 75: *value = (int)capability / 10; break;
    case 76: *value = (int)capability % 10; break;
    case 115: *value = (int)pools; break;
    default: return end(INVALID_VALUE);
    }
    return end(0);
}

u32 cuDevicePrimaryCtxRetain(u64 *context, int device)
{
    BEGIN;
    if (device < 0 || device >= devices)
        return end(INVALID_DEVICE);
    ++retained[device];
    *context = (u64)device + 1;
    return end(0);
}

u32 cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN;
    if (device < 0 || device >= devices || !retained[device])
        return end(INVALID_CONTEXT);
    --retained[device];
    return end(0);
}

u32 cuCtxPushCurrent_v2(u64 context)
{
    BEGIN;
    if (context < 1 || context > DEVICES || depth == 16)
        return end(INVALID_CONTEXT);
    stack[depth++] = (int)context;
    return end(0);
}

u32 cuCtxPopCurrent_v2(u64 *context)
{
    BEGIN;
    if (!depth)
        return end(INVALID_CONTEXT);
    *context = (u64)stack[--depth];
    return end(0);
}

u32 cuCtxGetCurrent(u64 *context)
{
    BEGIN;
    *context = depth ? (u64)stack[depth - 1] : 0;
    return end(0);
}

u32 cuModuleLoadDataEx(u64 *module, const void *image, u32 count, const u32 *options, void **values)
{
    struct object *made;
    const char *text = image;
    BEGIN_WITH_CONTEXT;
    if (!jit || !strstr(text, ".version ")) {
        for (u32 i = 0; i < count; ++i)
            if (options[i] == 5)
                strcpy(values[i], "fake ptxas: no instruction");
        return end(INVALID_PTX);
    }
    made = make(MODULE, current());
    made->image = strdup(text);
    *module = (u64)(uintptr_t)made;
    return end(0);
}

u32 cuModuleUnload(u64 module)
{
    struct object *object;
    BEGIN_WITH_CONTEXT;
    object = find(module, MODULE);
    if (!object)
        return end(INVALID_HANDLE);
    run_all();
    free(object->image);
    object->alive = 0;
    return end(0);
}

/* A function's handle is its kernel of the host: module and name must agree with what is linked here. */
u32 cuModuleGetFunction(u64 *function, u64 module, const char *name)
{
    struct object *object;
    char entry[128], symbol[128];
    Dl_info self;
    void *library;
    BEGIN_WITH_CONTEXT;
    object = find(module, MODULE);
    if (!object)
        return end(INVALID_HANDLE);
    snprintf(entry, sizeof entry, ".entry %s(", name);
    snprintf(symbol, sizeof symbol, "wellfed_kernel_%s", name);
    if (!strstr(object->image, entry) || !dladdr((void *)&codes, &self))
        return end(NOT_FOUND);
    library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = (u64)(uintptr_t)(library ? dlsym(library, symbol) : NULL);
    return end(*function ? 0 : NOT_FOUND);
}

u32 cuLaunchKernel(u64 function, u32 x, u32 y, u32 z, u32 threads_x, u32 threads_y, u32 threads_z, u32 shared_bytes,
                   u64 stream, void **arguments, void **extra)
{
    const struct wellfed_kernel *kernel = (void *)(uintptr_t)function;
    struct object *where;
    void *copy;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where)
        return end(INVALID_HANDLE);
    if (!x || !y || !z || y > 65535 || z > 65535 || extra || shared_bytes)
        return end(INVALID_VALUE);
    if (!threads_x || threads_y != 1 || threads_z != 1 || threads_x > kernel->threads)
        return end(INVALID_VALUE);
    copy = malloc(kernel->bytes);
    memcpy(copy, arguments[0], kernel->bytes);
    return end(submit(where, (struct operation){.kind = LAUNCH, .from = copy, .kernel = kernel, .grid = {x, y, z}}));
}

u32 cuMemGetInfo_v2(size_t *left, size_t *total)
{
    BEGIN_WITH_CONTEXT;
    *total = (size_t)memory;
    *left = (size_t)memory - used[current()];
    return end(0);
}

static u32 device_memory(u64 *pointer, size_t bytes)
{
    struct object *made = NULL;
    u32 code = allocate(MEMORY, bytes, &made);
    *pointer = made ? (u64)(uintptr_t)made->memory : 0;
    return code;
}

u32 cuMemAlloc_v2(u64 *pointer, size_t bytes)
{
    BEGIN_WITH_CONTEXT;
    return end(device_memory(pointer, bytes));
}

/* It waits for the device, as the real one does. */
u32 cuMemFree_v2(u64 pointer)
{
    BEGIN_WITH_CONTEXT;
    run_all();
    return end(release(by_address(pointer, MEMORY)));
}

u32 cuMemAllocAsync(u64 *pointer, size_t bytes, u64 stream)
{
    BEGIN_WITH_CONTEXT;
    if (!pools)
        return end(NOT_SUPPORTED);
    if (!find_stream(stream))
        return end(INVALID_HANDLE);
    return end(device_memory(pointer, bytes));
}

u32 cuMemFreeAsync(u64 pointer, u64 stream)
{
    struct object *where, *object;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    object = by_address(pointer, MEMORY);
    if (!where || !object)
        return end(where ? INVALID_VALUE : INVALID_HANDLE);
    return end(submit(where, (struct operation){.kind = FREE, .other = object}));
}

u32 cuMemHostAlloc(void **pointer, size_t bytes, u32 flags)
{
    struct object *made = NULL;
    u32 code;
    BEGIN_WITH_CONTEXT;
    if (flags & ~7u)
        return end(INVALID_VALUE);
    code = allocate(PINNED, bytes, &made);
    *pointer = made ? made->memory : NULL;
    return end(code);
}

u32 cuMemFreeHost(void *pointer)
{
    BEGIN_WITH_CONTEXT;
    run_all();
    return end(release(by_address((u64)(uintptr_t)pointer, PINNED)));
}

/* Memory that somebody else owns: it is neither filled nor freed here. */
u32 cuMemHostRegister_v2(void *pointer, size_t bytes, u32 flags)
{
    struct object *made;
    BEGIN_WITH_CONTEXT;
    if (flags & ~15u || !bytes || by_address((u64)(uintptr_t)pointer, REGISTERED))
        return end(INVALID_VALUE);
    made = make(REGISTERED, HOST);
    made->memory = pointer;
    made->bytes = bytes;
    return end(0);
}

u32 cuMemHostUnregister(void *pointer)
{
    struct object *object;
    BEGIN_WITH_CONTEXT;
    run_all();
    object = by_address((u64)(uintptr_t)pointer, REGISTERED);
    if (object)
        object->alive = 0;
    return end(object ? 0 : INVALID_VALUE);
}

u32 cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, u64 stream)
{
    struct object *where;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where || !holder(to, bytes))
        return end(where ? INVALID_VALUE : INVALID_HANDLE);
    return end(submit(where, (struct operation){.kind = COPY, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes}));
}

u32 cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, u64 stream)
{
    struct object *where;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where || !holder(from, bytes))
        return end(where ? INVALID_VALUE : INVALID_HANDLE);
    return end(submit(where, (struct operation){.kind = COPY, .to = to, .from = (void *)(uintptr_t)from, .bytes = bytes}));
}

u32 cuMemsetD8Async(u64 to, u8 value, size_t bytes, u64 stream)
{
    struct object *where;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where || !holder(to, bytes))
        return end(where ? INVALID_VALUE : INVALID_HANDLE);
    return end(submit(where, (struct operation){.kind = SET, .to = (void *)(uintptr_t)to, .value = value, .bytes = bytes}));
}

u32 cuStreamCreateWithPriority(u64 *stream, u32 flags, int priority)
{
    BEGIN_WITH_CONTEXT;
    (void)priority;
    if (flags > 1)
        return end(INVALID_VALUE);
    *stream = (u64)(uintptr_t)make(STREAM, current());
    return end(0);
}

u32 cuStreamDestroy_v2(u64 stream)
{
    struct object *object;
    BEGIN_WITH_CONTEXT;
    object = find(stream, STREAM);
    if (!object)
        return end(INVALID_HANDLE);
    run_until(object, object->submitted);
    object->alive = 0;
    return end(0);
}

u32 cuStreamSynchronize(u64 stream)
{
    struct object *where;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where)
        return end(INVALID_HANDLE);
    run_until(where, where->submitted);
    return end(sticky);
}

u32 cuStreamQuery(u64 stream)
{
    struct object *where;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    if (!where)
        return end(INVALID_HANDLE);
    if (where->done == where->submitted)
        return end(sticky);
    run_until(where, where->done + 1);
    return end(NOT_READY);
}

u32 cuStreamWaitEvent(u64 stream, u64 event, u32 flags)
{
    struct object *where, *what;
    BEGIN_WITH_CONTEXT;
    where = find_stream(stream);
    what = find(event, EVENT);
    if (!where || !what || flags)
        return end(INVALID_HANDLE);
    if (!what->stream)
        return end(0);
    return end(submit(where, (struct operation){.kind = WAIT, .other = what->stream, .at = what->at}));
}

u32 cuEventCreate(u64 *event, u32 flags)
{
    BEGIN_WITH_CONTEXT;
    (void)flags;
    *event = (u64)(uintptr_t)make(EVENT, current());
    return end(0);
}

u32 cuEventDestroy_v2(u64 event)
{
    struct object *object;
    BEGIN_WITH_CONTEXT;
    object = find(event, EVENT);
    if (!object)
        return end(INVALID_HANDLE);
    object->alive = 0;
    return end(0);
}

u32 cuEventRecord(u64 event, u64 stream)
{
    struct object *what, *where;
    BEGIN_WITH_CONTEXT;
    what = find(event, EVENT);
    where = find_stream(stream);
    if (!what || !where)
        return end(INVALID_HANDLE);
    what->stream = where;
    what->at = where->submitted + 1;
    return end(submit(where, (struct operation){.kind = RECORD, .other = what}));
}

u32 cuEventQuery(u64 event)
{
    struct object *what;
    BEGIN_WITH_CONTEXT;
    what = find(event, EVENT);
    if (!what)
        return end(INVALID_HANDLE);
    if (!what->stream || what->stream->done >= what->at)
        return end(sticky);
    run_until(what->stream, what->stream->done + 1);
    return end(NOT_READY);
}

u32 cuEventSynchronize(u64 event)
{
    struct object *what;
    BEGIN_WITH_CONTEXT;
    what = find(event, EVENT);
    if (!what)
        return end(INVALID_HANDLE);
    if (what->stream)
        run_until(what->stream, what->at);
    return end(sticky);
}

u32 cuEventElapsedTime(float *milliseconds, u64 from, u64 to)
{
    struct object *start, *stop;
    BEGIN_WITH_CONTEXT;
    start = find(from, EVENT);
    stop = find(to, EVENT);
    if (!start || !stop || !start->stream || !stop->stream)
        return end(INVALID_HANDLE);
    if (start->stream->done < start->at || stop->stream->done < stop->at)
        return end(NOT_READY);
    *milliseconds = (float)(stop->time - start->time);
    return end(0);
}

/* These two count as no call and never fail by themselves. */
static u32 describe(u32 code, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i)
        if (codes[i].code == code) {
            *name = codes[i].name;
            *text = codes[i].text;
            return 0;
        }
    return INVALID_VALUE;
}

u32 cuGetErrorName(u32 code, const char **name)
{
    const char *text;
    return describe(code, name, &text);
}

u32 cuGetErrorString(u32 code, const char **text)
{
    const char *name;
    return describe(code, &name, text);
}
