#define _GNU_SOURCE
#include "CMuxDecoder.h"

#if defined(__linux__)

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The data layouts and constants of zlib.h, decode.h (Brotli) and zstd.h, which belong to the binary interfaces of
// these libraries.

struct z_stream {
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state;
    void *zalloc, *zfree, *opaque;
    int data_type;
    unsigned long adler, reserved;
};

struct zstd_in { const void *bytes; size_t count, position; };
struct zstd_out { void *bytes; size_t count, position; };

static struct {
    int (*inflateInit2_)(struct z_stream *, int, const char *, int);
    int (*inflate)(struct z_stream *, int);
    int (*inflateEnd)(struct z_stream *);
    void *(*brotliMake)(void *, void *, void *);
    int (*brotliRun)(void *, size_t *, const uint8_t **, size_t *, uint8_t **, size_t *);
    void (*brotliFree)(void *);
    void *(*zstdMake)(void);
    size_t (*zstdRun)(void *, struct zstd_out *, struct zstd_in *);
    size_t (*zstdFree)(void *);
    unsigned (*zstdIsError)(size_t);
    size_t (*zstdSet)(void *, int, int);
} libraries;

static int has_zlib, has_brotli, has_zstd;

static void open_all(void) {
    void *zlib = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (zlib) {
        libraries.inflateInit2_ = (int (*)(struct z_stream *, int, const char *, int))dlsym(zlib, "inflateInit2_");
        libraries.inflate = (int (*)(struct z_stream *, int))dlsym(zlib, "inflate");
        libraries.inflateEnd = (int (*)(struct z_stream *))dlsym(zlib, "inflateEnd");
        has_zlib = libraries.inflateInit2_ && libraries.inflate && libraries.inflateEnd;
    }
    void *brotli = dlopen("libbrotlidec.so.1", RTLD_NOW | RTLD_LOCAL);
    if (brotli) {
        libraries.brotliMake = (void *(*)(void *, void *, void *))dlsym(brotli, "BrotliDecoderCreateInstance");
        libraries.brotliRun = (int (*)(void *, size_t *, const uint8_t **, size_t *, uint8_t **, size_t *))dlsym(
            brotli, "BrotliDecoderDecompressStream");
        libraries.brotliFree = (void (*)(void *))dlsym(brotli, "BrotliDecoderDestroyInstance");
        has_brotli = libraries.brotliMake && libraries.brotliRun && libraries.brotliFree;
    }
    void *zstd = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (zstd) {
        libraries.zstdMake = (void *(*)(void))dlsym(zstd, "ZSTD_createDStream");
        libraries.zstdRun =
            (size_t (*)(void *, struct zstd_out *, struct zstd_in *))dlsym(zstd, "ZSTD_decompressStream");
        libraries.zstdFree = (size_t (*)(void *))dlsym(zstd, "ZSTD_freeDStream");
        libraries.zstdIsError = (unsigned (*)(size_t))dlsym(zstd, "ZSTD_isError");
        libraries.zstdSet = (size_t (*)(void *, int, int))dlsym(zstd, "ZSTD_DCtx_setParameter");
        has_zstd = libraries.zstdSet && libraries.zstdMake && libraries.zstdRun && libraries.zstdFree && libraries.zstdIsError;
    }
}

// The codings, by the first letters of their names.
enum { GZIP = 'g', DEFLATE = 'd', BROTLI = 'b', ZSTD = 'z' };

struct mux_decoder {
    char coding;
    // For deflate: the first bytes, which show whether the content has a zlib header; some servers send no header.
    uint8_t first[2];
    size_t first_count;
    int is_ready;
    struct z_stream z;
    void *other;
};

int mux_decoder_exists(const char *coding) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_all);
    switch (coding[0]) {
    case GZIP:
    case DEFLATE: return has_zlib;
    case BROTLI: return has_brotli;
    case ZSTD: return has_zstd;
    default: return 0;
    }
}

mux_decoder *mux_decoder_make(const char *coding) {
    if (!mux_decoder_exists(coding)) return NULL;
    mux_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) return NULL;
    decoder->coding = coding[0];
    switch (coding[0]) {
    case GZIP:
        // 15: the largest window, 2^15 bytes; 16 selects the gzip format. zlib compares only the first digit of the
        // version.
        decoder->is_ready = libraries.inflateInit2_(&decoder->z, 15 + 16, "1.2.11", sizeof decoder->z) == 0;
        break;
    case DEFLATE: return decoder;
    case BROTLI: decoder->other = libraries.brotliMake(NULL, NULL, NULL); break;
    case ZSTD:
        decoder->other = libraries.zstdMake();
        // RFC 9659: the window of a content coding has at most 8 MB (2^23 bytes).
        if (decoder->other) libraries.zstdSet(decoder->other, 100 /* ZSTD_d_windowLogMax */, 23);
        break;
    }
    if (decoder->is_ready || decoder->other) return decoder;
    free(decoder);
    return NULL;
}

void mux_decoder_free(mux_decoder *decoder) {
    if (decoder->is_ready) libraries.inflateEnd(&decoder->z);
    if (decoder->other && decoder->coding == BROTLI) libraries.brotliFree(decoder->other);
    if (decoder->other && decoder->coding == ZSTD) libraries.zstdFree(decoder->other);
    free(decoder);
}

static int inflate_some(
    mux_decoder *decoder, const uint8_t **input, size_t *count, uint8_t *output, size_t capacity, size_t *written) {
    struct z_stream *z = &decoder->z;
    unsigned offered = *count > 1u << 30 ? 1u << 30 : (unsigned)*count;
    z->next_in = *input;
    z->avail_in = offered;
    z->next_out = output + *written;
    z->avail_out = (unsigned)(capacity - *written);
    int result = libraries.inflate(z, 0 /* Z_NO_FLUSH */);
    *input += offered - z->avail_in;
    *count -= offered - z->avail_in;
    *written = capacity - z->avail_out;
    if (result == 1 /* Z_STREAM_END */) return 1;
    return result == 0 || result == -5 /* Z_BUF_ERROR: more input or output is needed */ ? 0 : -1;
}

int mux_decoder_run(
    mux_decoder *decoder, const uint8_t **input, size_t *count, uint8_t *output, size_t capacity, size_t *written) {
    *written = 0;
    switch (decoder->coding) {
    case DEFLATE:
        if (!decoder->is_ready) {
            while (decoder->first_count < 2 && *count > 0) {
                decoder->first[decoder->first_count++] = *(*input)++;
                *count -= 1;
            }
            if (decoder->first_count < 2) return 0;
            // RFC 1950, section 2.2: the method is 8, and both bytes are a multiple of 31. A negative window selects
            // deflate without a header.
            int has_header = (decoder->first[0] & 15) == 8 && (decoder->first[0] << 8 | decoder->first[1]) % 31 == 0;
            if (libraries.inflateInit2_(&decoder->z, has_header ? 15 : -15, "1.2.11", sizeof decoder->z) != 0) return -1;
            decoder->is_ready = 1;
            const uint8_t *first = decoder->first;
            size_t two = 2;
            int result = inflate_some(decoder, &first, &two, output, capacity, written);
            if (result != 0) return result;
        }
        return inflate_some(decoder, input, count, output, capacity, written);
    case GZIP: return inflate_some(decoder, input, count, output, capacity, written);
    case BROTLI: {
        uint8_t *next = output;
        size_t room = capacity;
        int result = libraries.brotliRun(decoder->other, count, input, &room, &next, NULL);
        *written = capacity - room;
        // BrotliDecoderResult: 0 is an error, 1 is the end, 2 and 3 need more input or output.
        return result == 1 ? 1 : result == 0 ? -1 : 0;
    }
    default: {
        struct zstd_in in = {*input, *count, 0};
        struct zstd_out out = {output, capacity, 0};
        size_t result = libraries.zstdRun(decoder->other, &out, &in);
        *input += in.position;
        *count -= in.position;
        *written = out.position;
        if (libraries.zstdIsError(result)) return -1;
        return result == 0 ? 1 : 0;
    }
    }
}

#endif
