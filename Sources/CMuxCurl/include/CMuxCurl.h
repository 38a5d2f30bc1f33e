// The C interface of libcurl that Swift cannot call by itself: the library is opened at run time, and its variadic functions are given
// types. Where there is no libcurl, `mux_curl_open` returns NULL. Everything is empty on other systems, which use URLSession.
#ifndef CMUXCURL_H
#define CMUXCURL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__linux__)

typedef struct mux_curl mux_curl;

// The numbers of curl.h, which do not change: they are libcurl's binary interface.
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

// Opens the library of this name and finds its functions; NULL if it, or one of them, is not there. It is never closed.
mux_curl *mux_curl_open(const char *name);

void *mux_easy_init(const mux_curl *curl);
void mux_easy_cleanup(const mux_curl *curl, void *easy);
int mux_easy_set_long(const mux_curl *curl, void *easy, int option, long value);
int mux_easy_set_offset(const mux_curl *curl, void *easy, int option, int64_t value);
int mux_easy_set_pointer(const mux_curl *curl, void *easy, int option, const void *value);
int mux_easy_set_text(const mux_curl *curl, void *easy, int option, const char *value);
int mux_easy_set_transfer(
    const mux_curl *curl, void *easy, int option, size_t (*function)(char *bytes, size_t size, size_t count, void *context));
int mux_easy_set_seek(const mux_curl *curl, void *easy, int (*function)(void *context, int64_t offset, int origin));
// The function is called before each sending of the request, also of one that libcurl repeats; 1 from it ends the transfer.
int mux_easy_set_before_sending(
    const mux_curl *curl, void *easy, int (*function)(void *context, char *, char *, int, int), void *context);
// The open sockets of the connections of one multi handle, which child processes do not inherit; to be freed after that handle.
typedef struct mux_sockets mux_sockets;
mux_sockets *mux_sockets_make(void);
void mux_sockets_free(mux_sockets *sockets);
// Records the sockets that libcurl opens for a transfer.
int mux_easy_set_sockets(const mux_curl *curl, void *easy, mux_sockets *sockets);

// Both ends of a connection, as the function called before a sending gets them.
typedef struct { const char *remote_ip, *local_ip; int remote_port, local_port; } mux_addresses;
// For the function called before a sending: 2 if the connection is new, 1 if nothing has arrived since its last response, 0 otherwise. Bytes
// on an idle connection are its end, or would be read as the response to the next request.
int mux_easy_is_connection_clean(const mux_curl *curl, void *easy, mux_sockets *sockets, mux_addresses addresses);
// Whether the server's GOAWAY says that it has not seen the stream of the request (RFC 9113, section 6.8).
typedef struct { unsigned own; int is_refused; } mux_streams;
// Notes that from now on, as far as libcurl tells (7.88).
int mux_easy_note_streams(const mux_curl *curl, void *easy, mux_streams *streams);
// Sets an option to bytes, which are copied.
int mux_easy_set_blob(const mux_curl *curl, void *easy, int option, const void *bytes, size_t count);
// The status of a proxy's answer to CONNECT; 0 if there was none.
long mux_easy_connect_status(const mux_curl *curl, void *easy);
// Whether a proxy refused the name or the password.
int mux_easy_is_proxy_refusal(const mux_curl *curl, void *easy);
int mux_easy_pause(const mux_curl *curl, void *easy, int mask);
const char *mux_easy_message(const mux_curl *curl, int result);

void *mux_list_append(const mux_curl *curl, void *list, const char *text);
void mux_list_free(const mux_curl *curl, void *list);

void *mux_multi_init(const mux_curl *curl);
void mux_multi_cleanup(const mux_curl *curl, void *multi);
int mux_multi_set_long(const mux_curl *curl, void *multi, int option, long value);
int mux_multi_add(const mux_curl *curl, void *multi, void *easy);
int mux_multi_remove(const mux_curl *curl, void *multi, void *easy);
int mux_multi_perform(const mux_curl *curl, void *multi);
// Where waiting fails, it returns a little later.
void mux_multi_poll(const mux_curl *curl, void *multi, int milliseconds);
int mux_multi_wakeup(const mux_curl *curl, void *multi);
// The next transfer that has ended, with its result; NULL if there is none.
void *mux_multi_ended(const mux_curl *curl, void *multi, int *result);

// Names the calling thread, by at most 15 bytes.
void mux_name_thread(const char *name);

// Keeps a broken connection from ending the process, for writes of the calling thread.
void mux_block_sigpipe(void);

#endif

#ifdef __cplusplus
}
#endif

#endif
