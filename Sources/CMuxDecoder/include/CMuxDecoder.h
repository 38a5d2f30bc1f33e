// Decoders of content codings. The libraries (zlib, Brotli and zstd) are opened at run time. The functions exist on
// Linux only; other systems use URLSession, which decodes responses.
#ifndef CMUXDECODER_H
#define CMUXDECODER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__linux__)

typedef struct mux_decoder mux_decoder;

// Whether the library that decodes this coding can be opened; `coding` is "gzip", "deflate", "br" or "zstd".
int mux_decoder_exists(const char *coding);
// Makes a decoder; NULL without the library or without memory.
mux_decoder *mux_decoder_make(const char *coding);
void mux_decoder_free(mux_decoder *decoder);
// Decodes some of the input: advances `*input`, reduces `*input_count`, and sets `*output_count` to the number of
// decoded bytes. Returns 0 if the content continues, 1 if the content is complete, -1 if the content is damaged.
int mux_decoder_run(
    mux_decoder *decoder, const uint8_t **input, size_t *input_count, uint8_t *output, size_t capacity, size_t *output_count);

#endif

#ifdef __cplusplus
}
#endif

#endif
