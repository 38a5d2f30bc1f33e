#define _GNU_SOURCE
#include "CMuxCurl.h"

#if defined(__linux__)

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

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
};

// OpenSSL frees its tables when the process exits. From then on, no thread enters libcurl any more.
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
    struct { const char *name; void **function; } all[] = {
        {"curl_global_init", (void **)&curl->global_init}, {"curl_easy_init", (void **)&curl->easy_init},
        {"curl_easy_cleanup", (void **)&curl->easy_cleanup}, {"curl_easy_setopt", (void **)&curl->easy_setopt}, {"curl_easy_getinfo", (void **)&curl->easy_getinfo},
        {"curl_easy_pause", (void **)&curl->easy_pause},
        {"curl_easy_strerror", (void **)&curl->easy_strerror}, {"curl_slist_append", (void **)&curl->slist_append},
        {"curl_slist_free_all", (void **)&curl->slist_free_all}, {"curl_multi_init", (void **)&curl->multi_init},
        {"curl_multi_cleanup", (void **)&curl->multi_cleanup}, {"curl_multi_setopt", (void **)&curl->multi_setopt},
        {"curl_multi_add_handle", (void **)&curl->multi_add_handle},
        {"curl_multi_remove_handle", (void **)&curl->multi_remove_handle},
        {"curl_multi_perform", (void **)&curl->multi_perform}, {"curl_multi_poll", (void **)&curl->multi_poll},
        {"curl_multi_wakeup", (void **)&curl->multi_wakeup}, {"curl_multi_info_read", (void **)&curl->multi_info_read},
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
    // Handlers run in reverse order: this one before that of OpenSSL, which was registered in global_init.
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
int mux_easy_set_text(const mux_curl *curl, void *easy, int option, const char *value) {
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
    const mux_curl *curl, void *easy, int (*function)(void *, char *, char *, int, int), void *context) {
    curl->easy_setopt(easy, 10313 /* CURLOPT_PREREQDATA */, context);
    return curl->easy_setopt(easy, 20312 /* CURLOPT_PREREQFUNCTION, 7.80 */, function);
}

static int close_on_exec(void *context, int socket, int purpose) {
    (void)context;
    (void)purpose;
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    return 0;
}

int mux_easy_close_on_exec(const mux_curl *curl, void *easy) {
    return curl->easy_setopt(easy, 20148 /* CURLOPT_SOCKOPTFUNCTION */, close_on_exec);
}

long mux_easy_connect_status(const mux_curl *curl, void *easy) {
    long status = 0;
    curl->easy_getinfo(easy, 0x200000 + 22 /* CURLINFO_HTTP_CONNECTCODE */, &status);
    return status;
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
int mux_multi_remove(const mux_curl *curl, void *multi, void *easy) {
    enter();
    int result = curl->multi_remove_handle(multi, easy);
    leave();
    return result;
}
int mux_multi_perform(const mux_curl *curl, void *multi) {
    int running = 0;
    enter();
    int result = curl->multi_perform(multi, &running);
    leave();
    return result;
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

void mux_name_thread(const char *name) { prctl(PR_SET_NAME, name); }

void mux_block_sigpipe(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

#endif
