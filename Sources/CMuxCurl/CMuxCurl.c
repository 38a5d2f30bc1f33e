#define _GNU_SOURCE
#include "CMuxCurl.h"

#if defined(__linux__)

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

// The layout of CURLMsg, which belongs to libcurl's binary interface.
struct message {
    int kind;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
};

struct mux_curl {
    int (*global_init)(long);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *);
    int (*easy_setopt)(void *, int, ...);
    int (*easy_getinfo)(void *, int, ...);
    int (*easy_pause)(void *, int);
    const char *(*easy_strerror)(int);
    void *(*slist_append)(void *, const char *);
    void (*slist_free_all)(void *);
    void *(*multi_init)(void);
    int (*multi_cleanup)(void *);
    int (*multi_setopt)(void *, int, ...);
    int (*multi_add_handle)(void *, void *);
    int (*multi_remove_handle)(void *, void *);
    int (*multi_perform)(void *, int *);
    int (*multi_poll)(void *, void *, unsigned, int, int *);
    int (*multi_wakeup)(void *);
    struct message *(*multi_info_read)(void *, int *);
    // Functions of the TLS library that libcurl uses; NULL if libcurl uses a different TLS library.
    int (*openssl_has_pending)(const void *);
    int (*openssl_get_shutdown)(const void *);
    void (*openssl_get_protocol)(const void *, const unsigned char **, unsigned *);
    size_t (*gnutls_pending)(void *);
    // Whether libcurl may accept certificates in memory, and then send requests without them, as with GnuTLS, NSS and
    // Rustls; 1 for every TLS library that is not known to use the certificates.
    int ignores_blobs;
};

// OpenSSL frees its tables when the process exits. An exit handler takes the lock for writing and never
// unlocks, so no thread afterwards enters the functions of libcurl that are called under the lock. With glibc, the lock
// prefers the writer: threads may take the lock for reading again and again.
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#else
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
#endif

static void enter(void) { pthread_rwlock_rdlock(&gate); }
static void leave(void) { pthread_rwlock_unlock(&gate); }
static void shut(void) { pthread_rwlock_wrlock(&gate); }
static void shut_at_exit(void) { atexit(shut); }

mux_curl *mux_curl_open(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
    struct mux_curl *curl = calloc(1, sizeof *curl);
    if (!curl) return NULL;
#define CURL(name) {"curl_" #name, (void **)&curl->name}
    struct { const char *name; void **function; } all[] = {
        CURL(global_init), CURL(easy_init), CURL(easy_cleanup), CURL(easy_setopt), CURL(easy_getinfo),
        CURL(easy_pause), CURL(easy_strerror), CURL(slist_append), CURL(slist_free_all), CURL(multi_init),
        CURL(multi_cleanup), CURL(multi_setopt), CURL(multi_add_handle), CURL(multi_remove_handle),
        CURL(multi_perform), CURL(multi_poll), CURL(multi_wakeup), CURL(multi_info_read),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].function = dlsym(library, all[i].name);
        if (!*all[i].function) {
            free(curl);
            return NULL;
        }
    }
    if (curl->global_init(3 /* CURL_GLOBAL_ALL */) != 0) {
        free(curl);
        return NULL;
    }
    *(void **)&curl->openssl_has_pending = dlsym(library, "SSL_has_pending");
    *(void **)&curl->openssl_get_shutdown = dlsym(library, "SSL_get_shutdown");
    *(void **)&curl->openssl_get_protocol = dlsym(library, "SSL_get0_alpn_selected");
    *(void **)&curl->gnutls_pending = dlsym(library, "gnutls_record_check_pending");
    const char *(*version)(void);
    *(void **)&version = dlsym(library, "curl_version");
    // Of several TLS libraries, all names except the used one begin with a parenthesis.
    static const char *const libraries[] = {" OpenSSL/", " LibreSSL/", " BoringSSL", " AWS-LC/", " quictls/"};
    curl->ignores_blobs = 1;
    for (size_t i = 0; version && i < sizeof libraries / sizeof *libraries; i++)
        if (strstr(version(), libraries[i])) curl->ignores_blobs = 0;
    // Exit handlers run in reverse order of registration: this handler runs before OpenSSL's, which global_init has
    // registered.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, shut_at_exit);
    return curl;
}

void *mux_easy_init(const mux_curl *curl) { return curl->easy_init(); }
void mux_easy_cleanup(const mux_curl *curl, void *easy) {
    enter();
    curl->easy_cleanup(easy);
    leave();
}
int mux_easy_set_long(const mux_curl *curl, void *easy, int option, long value) {
    return curl->easy_setopt(easy, option, value);
}
int mux_easy_set_offset(const mux_curl *curl, void *easy, int option, int64_t value) {
    return curl->easy_setopt(easy, option, value);
}
int mux_easy_set_pointer(const mux_curl *curl, void *easy, int option, const void *value) {
    return curl->easy_setopt(easy, option, value);
}
int mux_easy_set_transfer(
    const mux_curl *curl, void *easy, int option, size_t (*function)(char *, size_t, size_t, void *)) {
    return curl->easy_setopt(easy, option, function);
}
int mux_easy_set_seek(const mux_curl *curl, void *easy, int (*function)(void *, int64_t, int)) {
    return curl->easy_setopt(easy, MUX_CURLOPT_SEEKFUNCTION, function);
}
int mux_easy_set_before_sending(
    const mux_curl *curl, void *easy, void *context, int (*function)(void *, char *, char *, int, int)) {
    curl->easy_setopt(easy, 10313 /* CURLOPT_PREREQDATA */, context);
    return curl->easy_setopt(easy, 20312 /* CURLOPT_PREREQFUNCTION, 7.80 */, function);
}

// MARK: - Sockets

struct mux_sockets {
    size_t count, capacity;
    struct { int descriptor, is_used; } *entries;
};

mux_sockets *mux_sockets_make(void) { return calloc(1, sizeof(struct mux_sockets)); }

void mux_sockets_free(mux_sockets *sockets) {
    if (sockets) free(sockets->entries);
    free(sockets);
}

static void forget(mux_sockets *sockets, int descriptor) {
    for (size_t i = 0; i < sockets->count; i++)
        if (sockets->entries[i].descriptor == descriptor) sockets->entries[i--] = sockets->entries[--sockets->count];
}

// CURLOPT_SOCKOPTFUNCTION: called after libcurl has made a socket.
static int opened(void *context, int descriptor, int purpose) {
    (void)purpose;
    mux_sockets *sockets = context;
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    forget(sockets, descriptor);
    if (sockets->count == sockets->capacity) {
        size_t capacity = sockets->capacity ? 2 * sockets->capacity : 16;
        void *entries = realloc(sockets->entries, capacity * sizeof *sockets->entries);
        if (!entries) return 1;
        sockets->entries = entries;
        sockets->capacity = capacity;
    }
    sockets->entries[sockets->count].descriptor = descriptor;
    sockets->entries[sockets->count++].is_used = 0;
    return 0;
}

// CURLOPT_CLOSESOCKETFUNCTION: closes a socket; also called for a connection that outlives the transfer that opened
// it.
static int closed(void *context, int descriptor) {
    forget(context, descriptor);
    return close(descriptor);
}

int mux_easy_set_sockets(const mux_curl *curl, void *easy, mux_sockets *sockets) {
    int result = curl->easy_setopt(easy, 10149 /* CURLOPT_SOCKOPTDATA */, sockets);
    if (result == 0) result = curl->easy_setopt(easy, 20148 /* CURLOPT_SOCKOPTFUNCTION */, opened);
    if (result == 0) result = curl->easy_setopt(easy, 10209 /* CURLOPT_CLOSESOCKETDATA */, sockets);
    if (result == 0) result = curl->easy_setopt(easy, 20208 /* CURLOPT_CLOSESOCKETFUNCTION */, closed);
    return result;
}

// Whether an address has the text `ip` and the port.
static int is_address(const struct sockaddr_storage *address, const char *ip, int port) {
    char text[INET6_ADDRSTRLEN] = "";
    int number = 0;
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        number = ntohs(in->sin_port);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        number = ntohs(in->sin6_port);
    }
    return number == port && ip && strcmp(text, ip) == 0;
}

// Whether the socket has nothing to read: neither bytes nor the end of the connection.
static int is_socket_silent(int descriptor) {
    char byte;
    ssize_t count;
    do { count = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT); } while (count < 0 && errno == EINTR);
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// Whether an idle HTTP/2 connection has ended, or is about to end. Other bytes on the connection are frames, which
// cannot be mistaken for the response to a later request. A GOAWAY frame makes nghttp2 refuse the new stream, and
// libcurl then sends the request again.
static int has_ended_http2(int descriptor) {
    struct pollfd events = {.fd = descriptor, .events = POLLIN | POLLRDHUP};
    if (poll(&events, 1, 0) < 0 || events.revents & (POLLRDHUP | POLLHUP | POLLERR)) return 1;
    unsigned char bytes[4096];
    ssize_t count = recv(descriptor, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (count <= 0) return 1;
    // A TLS record begins with 5 bytes: the type, the version and the length.
    // In TLS 1.2, an alert has the record type 21. In TLS 1.3, an alert has the record type of data; its length is
    // 19: 2 bytes for the alert, 1 for the type and 16 for the tag.
    for (ssize_t at = 0, length; at < count; at += 5 + length) {
        if (count - at < 5 || bytes[at] == 21) return 1;
        length = bytes[at + 3] << 8 | bytes[at + 4];
        if (length <= 19) return 1;
    }
    return 0;
}

// Whether nothing has arrived on the connection of a transfer since the last response, except HTTP/2 frames with
// OpenSSL. The TLS library may hold the unread part of a record, or may have received an end of the connection that
// libcurl before 8 overlooks on an idle HTTP/2 connection.
static int is_idle(const mux_curl *curl, void *easy, int descriptor) {
    struct { int backend; void *session; } *tls = NULL;
    int is_silent = is_socket_silent(descriptor);
    if (curl->easy_getinfo(easy, 0x400000 + 45 /* CURLINFO_TLS_SSL_PTR */, &tls) != 0 || !tls || !tls->session) return is_silent;
    if (tls->backend == 2 /* CURLSSLBACKEND_GNUTLS */)
        return is_silent && (!curl->gnutls_pending || curl->gnutls_pending(tls->session) == 0);
    if (tls->backend != 1 /* CURLSSLBACKEND_OPENSSL */) return is_silent;
    if (curl->openssl_get_shutdown && curl->openssl_get_shutdown(tls->session) & 2 /* SSL_RECEIVED_SHUTDOWN */) return 0;
    const unsigned char *protocol = NULL;
    unsigned length = 0;
    if (curl->openssl_get_protocol) curl->openssl_get_protocol(tls->session, &protocol, &length);
    if (length == 2 && memcmp(protocol, "h2", 2) == 0) return is_silent || !has_ended_http2(descriptor);
    return is_silent && !(curl->openssl_has_pending && curl->openssl_has_pending(tls->session));
}

int mux_easy_is_connection_clean(const mux_curl *curl, void *easy, mux_sockets *sockets, mux_addresses addresses) {
    long connects = 0;
    curl->easy_getinfo(easy, 0x200000 + 26 /* CURLINFO_NUM_CONNECTS */, &connects);
    for (size_t i = 0; i < sockets->count; i++) {
        int descriptor = sockets->entries[i].descriptor;
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        if (getsockname(descriptor, (struct sockaddr *)&address, &length) != 0) continue;
        if (!is_address(&address, addresses.local_ip, addresses.local_port)) continue;
        length = sizeof address;
        // After a reset, getpeername fails: then only the local address is compared.
        if (getpeername(descriptor, (struct sockaddr *)&address, &length) == 0
            && !is_address(&address, addresses.remote_ip, addresses.remote_port)) continue;
        int is_new = connects > 0 && !sockets->entries[i].is_used;
        sockets->entries[i].is_used = 1;
        return is_new ? 2 : is_idle(curl, easy, descriptor);
    }
    return connects > 0 ? 2 : 0;
}

// CURLOPT_DEBUGFUNCTION: libcurl reports the numbers of HTTP/2 streams only in debug messages.
static int noted(void *easy, int kind, char *text, size_t size, void *context) {
    (void)easy;
    mux_streams *streams = context;
    char line[128] = "";
    if (kind != 0 /* CURLINFO_TEXT */) return 0;
    memcpy(line, text, size < sizeof line ? size : sizeof line - 1);
    unsigned number;
    const char *last = strstr(line, " GOAWAY, ") ? strstr(line, "last_stream=") : NULL;
    if (sscanf(line, "Using Stream ID: %u", &number) == 1) {
        streams->own = number;
        streams->is_refused = 0;
    } else if (last && sscanf(last, "last_stream=%u", &number) == 1) {
        streams->is_refused = streams->own > number;
    }
    return 0;
}

int mux_easy_note_streams(const mux_curl *curl, void *easy, mux_streams *streams) {
    int result = curl->easy_setopt(easy, 10095 /* CURLOPT_DEBUGDATA */, streams);
    if (result == 0) result = curl->easy_setopt(easy, 20094 /* CURLOPT_DEBUGFUNCTION */, noted);
    if (result == 0) result = curl->easy_setopt(easy, 41 /* CURLOPT_VERBOSE */, 1L);
    return result;
}

int mux_easy_set_blob(const mux_curl *curl, void *easy, int option, const void *bytes, size_t count) {
    if (curl->ignores_blobs) return 4 /* CURLE_NOT_BUILT_IN */;
    struct { const void *bytes; size_t count; unsigned flags; } blob = {bytes, count, 1 /* CURL_BLOB_COPY */};
    return curl->easy_setopt(easy, option, &blob);
}

long mux_easy_connect_status(const mux_curl *curl, void *easy) {
    long status = 0;
    curl->easy_getinfo(easy, 0x200000 + 22 /* CURLINFO_HTTP_CONNECTCODE */, &status);
    return status;
}

int mux_easy_is_proxy_refusal(const mux_curl *curl, void *easy) {
    long code = 0;
    curl->easy_getinfo(easy, 0x200000 + 59 /* CURLINFO_PROXY_ERROR, 7.73 */, &code);
    switch (code) {
    case 7: case 8:            // CURLPX_IDENTD, CURLPX_IDENTD_DIFFER
    case 10: case 11: case 12: // CURLPX_LONG_PASSWD, CURLPX_LONG_USER, CURLPX_NO_AUTH
    case 33: return 1;         // CURLPX_USER_REJECTED
    default: return mux_easy_connect_status(curl, easy) == 407;
    }
}

int mux_easy_pause(const mux_curl *curl, void *easy, int mask) {
    enter();
    int result = curl->easy_pause(easy, mask);
    leave();
    return result;
}
const char *mux_easy_message(const mux_curl *curl, int result) { return curl->easy_strerror(result); }

void *mux_list_append(const mux_curl *curl, void *list, const char *text) { return curl->slist_append(list, text); }
void mux_list_free(const mux_curl *curl, void *list) { curl->slist_free_all(list); }

void *mux_multi_init(const mux_curl *curl) { return curl->multi_init(); }
void mux_multi_cleanup(const mux_curl *curl, void *multi) {
    enter();
    curl->multi_cleanup(multi);
    leave();
}
int mux_multi_set_long(const mux_curl *curl, void *multi, int option, long value) {
    return curl->multi_setopt(multi, option, value);
}
int mux_multi_add(const mux_curl *curl, void *multi, void *easy) { return curl->multi_add_handle(multi, easy); }
void mux_multi_remove(const mux_curl *curl, void *multi, void *easy) {
    enter();
    curl->multi_remove_handle(multi, easy);
    leave();
}
void mux_multi_perform(const mux_curl *curl, void *multi) {
    int running = 0;
    enter();
    curl->multi_perform(multi, &running);
    leave();
}
void mux_multi_poll(const mux_curl *curl, void *multi, int milliseconds) {
    if (curl->multi_poll(multi, NULL, 0, milliseconds, NULL) != 0) poll(NULL, 0, 10);
}
int mux_multi_wakeup(const mux_curl *curl, void *multi) { return curl->multi_wakeup(multi); }
void *mux_multi_ended(const mux_curl *curl, void *multi, int *result) {
    int left = 0;
    for (;;) {
        struct message *message = curl->multi_info_read(multi, &left);
        if (!message) return NULL;
        if (message->kind != 1 /* CURLMSG_DONE */) continue;
        *result = message->data.result;
        return message->easy;
    }
}

void mux_begin_thread(const char *name) {
    prctl(PR_SET_NAME, name);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

#endif
