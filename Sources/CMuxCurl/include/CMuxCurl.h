// Wrappers of libcurl's functions for Swift. The library is opened at run time; without libcurl,
// `mux_curl_open` returns NULL. Functions with fixed types replace libcurl's variadic functions, which Swift
// cannot call. This header is empty on systems other than Linux, which use URLSession.
#ifndef CMUXCURL_H
#define CMUXCURL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__linux__)

typedef struct mux_curl mux_curl;

// The constants of curl.h, which belong to libcurl's binary interface and never change.
enum {
    MUX_CURLOPT_WRITEDATA = 10001, MUX_CURLOPT_URL = 10002, MUX_CURLOPT_READDATA = 10009, MUX_CURLOPT_ERRORBUFFER = 10010,
    MUX_CURLOPT_WRITEFUNCTION = 20011, MUX_CURLOPT_READFUNCTION = 20012,
    MUX_CURLOPT_HTTPHEADER = 10023, MUX_CURLOPT_HEADERDATA = 10029, MUX_CURLOPT_CUSTOMREQUEST = 10036, MUX_CURLOPT_SSLCERT = 10025, MUX_CURLOPT_KEYPASSWD = 10026,
    MUX_CURLOPT_SSLCERTTYPE = 10086, MUX_CURLOPT_SSLKEY = 10087, MUX_CURLOPT_SSLCERT_BLOB = 40291, MUX_CURLOPT_SSLKEY_BLOB = 40292, MUX_CURLOPT_NOBODY = 44,
    MUX_CURLOPT_UPLOAD = 46, MUX_CURLOPT_CAINFO = 10065, MUX_CURLOPT_FRESH_CONNECT = 74, MUX_CURLOPT_FORBID_REUSE = 75, MUX_CURLOPT_HEADERFUNCTION = 20079,
    MUX_CURLOPT_HTTP_VERSION = 84, MUX_CURLOPT_CAPATH = 10097, MUX_CURLOPT_BUFFERSIZE = 98, MUX_CURLOPT_NOSIGNAL = 99,
    MUX_CURLOPT_INFILESIZE_LARGE = 30115, MUX_CURLOPT_CONNECTTIMEOUT_MS = 156,
    MUX_CURLOPT_HTTP_CONTENT_DECODING = 158, MUX_CURLOPT_SEEKFUNCTION = 20167, MUX_CURLOPT_SEEKDATA = 10168,
    MUX_CURLOPT_NOPROXY = 10177, MUX_CURLOPT_PROTOCOLS = 181, MUX_CURLOPT_PATH_AS_IS = 234,
    MUX_CURLOPT_SUPPRESS_CONNECT_HEADERS = 265, MUX_CURLOPT_HTTP09_ALLOWED = 285, MUX_CURLOPT_QUICK_EXIT = 322,
    MUX_CURLMOPT_PIPELINING = 3,
    MUX_CURL_HTTP_VERSION_2TLS = 4, MUX_CURLPROTO_HTTP_AND_HTTPS = 3, MUX_CURLPAUSE_CONT = 0,
    MUX_CURL_WRITEFUNC_PAUSE = 0x10000001, MUX_CURL_READFUNC_PAUSE = 0x10000001, MUX_CURL_READFUNC_ABORT = 0x10000000,
    MUX_CURL_SEEKFUNC_OK = 0, MUX_CURL_SEEKFUNC_FAIL = 1
};

// Opens the library with this name and looks up its functions; NULL if the library or a function is missing, or if
// the initialisation fails. The library is never closed.
mux_curl *mux_curl_open(const char *name);

void *mux_easy_init(const mux_curl *curl);
void mux_easy_cleanup(const mux_curl *curl, void *easy);
int mux_easy_set_long(const mux_curl *curl, void *easy, int option, long value);
int mux_easy_set_offset(const mux_curl *curl, void *easy, int option, int64_t value);
int mux_easy_set_pointer(const mux_curl *curl, void *easy, int option, const void *value);
int mux_easy_set_transfer(
    const mux_curl *curl, void *easy, int option, size_t (*function)(char *bytes, size_t size, size_t count, void *context));
int mux_easy_set_seek(const mux_curl *curl, void *easy, int (*function)(void *context, int64_t offset, int origin));
// libcurl calls `function` before each sending of the request, including repeated sendings; the result 1 ends the
// transfer. The result of this function is not 0 before libcurl 7.80.
int mux_easy_set_before_sending(
    const mux_curl *curl, void *easy, void *context, int (*function)(void *, char *, char *, int, int));
// The open sockets of one multi handle; child processes do not inherit the sockets. To be freed after the multi
// handle.
typedef struct mux_sockets mux_sockets;
mux_sockets *mux_sockets_make(void);
void mux_sockets_free(mux_sockets *sockets);
// Records the sockets that libcurl opens for a transfer in `sockets`.
int mux_easy_set_sockets(const mux_curl *curl, void *easy, mux_sockets *sockets);

// The addresses of both ends of a connection, as received by the callback of mux_easy_set_before_sending.
typedef struct { const char *remote_ip, *local_ip; int remote_port, local_port; } mux_addresses;
// For the callback of mux_easy_set_before_sending: 2 if the connection is new, 1 if nothing has arrived since the
// last response (except HTTP/2 frames, with OpenSSL), 0 otherwise. Input on an idle connection is the end of the
// connection, or would be read as the response to the next request.
int mux_easy_is_connection_clean(const mux_curl *curl, void *easy, mux_sockets *sockets, mux_addresses addresses);
// The stream of the request, and whether a GOAWAY reports that the server has not processed the stream (RFC 9113,
// section 6.8).
typedef struct { unsigned own; int is_refused; } mux_streams;
// Updates `streams` during the transfer, from debug messages with the wording of libcurl 7.88.
int mux_easy_note_streams(const mux_curl *curl, void *easy, mux_streams *streams);
// Sets an option to bytes, which are copied.
int mux_easy_set_blob(const mux_curl *curl, void *easy, int option, const void *bytes, size_t count);
// The status of a proxy's response to CONNECT; 0 without a response.
long mux_easy_connect_status(const mux_curl *curl, void *easy);
// Whether a proxy refused the user name or the password.
int mux_easy_is_proxy_refusal(const mux_curl *curl, void *easy);
int mux_easy_pause(const mux_curl *curl, void *easy, int mask);
const char *mux_easy_message(const mux_curl *curl, int result);

void *mux_list_append(const mux_curl *curl, void *list, const char *text);
void mux_list_free(const mux_curl *curl, void *list);

void *mux_multi_init(const mux_curl *curl);
void mux_multi_cleanup(const mux_curl *curl, void *multi);
int mux_multi_set_long(const mux_curl *curl, void *multi, int option, long value);
int mux_multi_add(const mux_curl *curl, void *multi, void *easy);
void mux_multi_remove(const mux_curl *curl, void *multi, void *easy);
void mux_multi_perform(const mux_curl *curl, void *multi);
// Waits for activity on the connections, mux_multi_wakeup or the end of the time; returns after 10 ms if libcurl
// cannot wait.
void mux_multi_poll(const mux_curl *curl, void *multi, int milliseconds);
int mux_multi_wakeup(const mux_curl *curl, void *multi);
// The next transfer that has ended, with its result; NULL if no further transfer has ended.
void *mux_multi_ended(const mux_curl *curl, void *multi, int *result);

// Sets the name of the calling thread, truncated to 15 bytes, and blocks SIGPIPE for the thread: a write to a broken
// connection must not end the process.
void mux_begin_thread(const char *name);

#endif

#ifdef __cplusplus
}
#endif

#endif
