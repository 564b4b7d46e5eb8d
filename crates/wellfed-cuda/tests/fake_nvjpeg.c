/* nvJPEG without a device: decodes each JPEG to three planes of one value each, 10, 20 and 30, at once.
 *
 * A JPEG without an end marker is one that it fails to decode (BAD_JPEG), and one with the comment "refuse" one that its
 * hardware does not take. Settings by fake_nvjpeg_set(name, value): `engines` (0: no hardware), `version`, `fail` (the
 * status that decoding returns), `width` (what it reads as each image's width, unless 0). To look at:
 * fake_nvjpeg_alive() (handles), fake_nvjpeg_batches() (batches that it was asked to decode), fake_nvjpeg_flags().
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;

enum { INVALID_PARAMETER = 2, BAD_JPEG = 3, ARCH_MISMATCH = 7 };

struct image {
    unsigned char *channel[4];
    size_t pitch[4];
};

struct handle {
    int backend, size, refused;
};

static int engines = 1, version = 13, fail, width, alive, batches, flags;

void fake_nvjpeg_set(const char *name, long long value)
{
    int number = (int)value;
    if (!strcmp(name, "engines"))
        engines = number;
    else if (!strcmp(name, "version"))
        version = number;
    else if (!strcmp(name, "fail"))
        fail = number;
    else if (!strcmp(name, "width"))
        width = number;
    else
        abort();
}

u64 fake_nvjpeg_alive(void)
{
    return (u64)alive;
}

u64 fake_nvjpeg_batches(void)
{
    return (u64)batches;
}

u64 fake_nvjpeg_flags(void)
{
    return (u64)flags;
}

static struct handle *make(int backend)
{
    struct handle *made = calloc(1, sizeof *made);
    made->backend = backend;
    ++alive;
    return made;
}

static int destroy(struct handle *handle)
{
    free(handle);
    --alive;
    return 0;
}

static const unsigned char *find(const unsigned char *data, size_t bytes, const char *what, size_t size)
{
    for (size_t i = 0; i + size <= bytes; ++i)
        if (!memcmp(data + i, what, size))
            return data + i;
    return NULL;
}

/* The size that the first SOF0 names. */
static int size(const unsigned char *data, size_t bytes, int *wide, int *high)
{
    const unsigned char *frame = find(data, bytes, "\xFF\xC0", 2);
    if (!frame || frame + 10 > data + bytes)
        return BAD_JPEG;
    *high = frame[5] << 8 | frame[6];
    *wide = width ? width : frame[7] << 8 | frame[8];
    return 0;
}

int nvjpegGetProperty(int kind, int *value)
{
    *value = kind ? kind : version;
    return 0;
}

int nvjpegCreateEx(int backend, const void *device, const void *pinned, unsigned options, struct handle **handle)
{
    if (device || pinned)
        return INVALID_PARAMETER;
    if (backend == 3 && !engines)
        return ARCH_MISMATCH;
    flags = (int)options;
    *handle = make(backend);
    return 0;
}

int nvjpegDestroy(struct handle *handle)
{
    return destroy(handle);
}

int nvjpegGetHardwareDecoderInfo(struct handle *handle, unsigned *count, unsigned *cores)
{
    (void)handle;
    *count = (unsigned)engines;
    *cores = 2;
    return 0;
}

int nvjpegJpegStateCreate(struct handle *handle, struct handle **state)
{
    *state = make(handle->backend);
    return 0;
}

int nvjpegJpegStateDestroy(struct handle *state)
{
    return destroy(state);
}

int nvjpegJpegStreamCreate(struct handle *handle, struct handle **stream)
{
    *stream = make(handle->backend);
    return 0;
}

int nvjpegJpegStreamDestroy(struct handle *stream)
{
    return destroy(stream);
}

int nvjpegGetImageInfo(struct handle *handle, const unsigned char *data, size_t bytes, int *components, int *sampling,
                       int *widths, int *heights)
{
    (void)handle;
    *components = 3;
    *sampling = 2;
    return size(data, bytes, widths, heights);
}

int nvjpegJpegStreamParseHeader(struct handle *handle, const unsigned char *data, size_t bytes, struct handle *stream)
{
    (void)handle;
    stream->refused = stream->backend == 3 && find(data, bytes, "refuse", 6);
    return 0;
}

int nvjpegDecodeBatchedSupported(struct handle *handle, struct handle *stream, int *supported)
{
    (void)handle;
    *supported = stream->refused; /* 0: yes */
    return 0;
}

int nvjpegDecodeBatchedInitialize(struct handle *handle, struct handle *state, int count, int threads, int format)
{
    (void)handle;
    state->size = count;
    return count > 0 && threads > 0 && format == 3 ? 0 : INVALID_PARAMETER;
}

int nvjpegDecodeBatched(struct handle *handle, struct handle *state, const unsigned char *const *data,
                        const size_t *bytes, struct image *images, void *stream)
{
    int wide, high;
    (void)handle;
    (void)stream;
    ++batches;
    if (fail)
        return fail;
    for (int i = 0; i < state->size; ++i)
        if (size(data[i], bytes[i], &wide, &high) || !find(data[i], bytes[i], "\xFF\xD9", 2))
            return BAD_JPEG;
    for (int i = 0; i < state->size; ++i) {
        size(data[i], bytes[i], &wide, &high);
        for (int plane = 0; plane < 3; ++plane)
            for (int row = 0; row < high; ++row)
                memset(images[i].channel[plane] + (size_t)row * images[i].pitch[plane], 10 * plane + 10, (size_t)wide);
    }
    return 0;
}
