// The used part of Apple's C library, with Apple's types. The declarations are in C, so that Swift imports them like
// Apple's declarations. Their C names differ, because the declarations of this machine's library are visible too.

#define NAMED(name) __attribute__((swift_name(name)))

typedef unsigned long size_t;
typedef unsigned short apple_mode_t NAMED("mode_t");
typedef unsigned int apple_nfds_t NAMED("nfds_t");
typedef unsigned int apple_socklen_t NAMED("socklen_t");
typedef unsigned char apple_sa_family_t NAMED("sa_family_t");
typedef long long apple_off_t NAMED("off_t");

// errno.h

#define EPERM 1
#define ENOENT 2
#define EINTR 4
#define EIO 5
#define EACCES 13
#define EEXIST 17
#define ENOTDIR 20
#define EINVAL 22
#define EFBIG 27
#define ENOSPC 28
#define EROFS 30
#define EAGAIN 35
#define EWOULDBLOCK EAGAIN
#define ENOTSUP 45
#define EDQUOT 69
#define ENOSYS 78
#define EOPNOTSUPP 102
#define ESTALE 70

int apple_strerror_r(int, char *, size_t) NAMED("strerror_r(_:_:_:)");

// time.h

struct NAMED("timespec") apple_timespec {
    long tv_sec;
    long tv_nsec;
};

// The constants are in Darwin.swift.
enum NAMED("clockid_t") apple_clockid {
    _CLOCK_REALTIME = 0,
};

int apple_clock_gettime(enum apple_clockid, struct apple_timespec *) NAMED("clock_gettime(_:_:)");
unsigned long long apple_clock_gettime_nsec_np(enum apple_clockid) NAMED("clock_gettime_nsec_np(_:)");

// fcntl.h, unistd.h, stdio.h; open and fcntl, which take any arguments, are in Darwin.swift.

#define O_RDONLY 0x0000
#define O_WRONLY 0x0001
#define O_RDWR 0x0002
#define O_APPEND 0x00000008
#define O_NOFOLLOW 0x00000100
#define O_CREAT 0x00000200
#define O_EXCL 0x00000800
#define O_EVTONLY 0x00008000
#define O_CLOEXEC 0x01000000
#define F_SETFD 2
#define F_FULLFSYNC 51
#define FD_CLOEXEC 1
#define AT_FDCWD -2
#define AT_EACCESS 0x0010
#define AT_SYMLINK_NOFOLLOW 0x0020
#define LOCK_EX 0x02
#define LOCK_NB 0x04
#define LOCK_UN 0x08
#define W_OK 2
#define SEEK_SET 0

struct NAMED("iovec") apple_iovec {
    void *iov_base;
    size_t iov_len;
};

int apple_close(int) NAMED("close(_:)");
int apple_faccessat(int, const char *, int, int) NAMED("faccessat(_:_:_:_:)");
int apple_flock(int, int) NAMED("flock(_:_:)");
int apple_fsync(int) NAMED("fsync(_:)");
int apple_ftruncate(int, apple_off_t) NAMED("ftruncate(_:_:)");
unsigned int apple_geteuid(void) NAMED("geteuid()");
apple_off_t apple_lseek(int, apple_off_t, int) NAMED("lseek(_:_:_:)");
int apple_pipe(int[2]) NAMED("pipe(_:)");
int apple_rename(const char *, const char *) NAMED("rename(_:_:)");
int apple_rmdir(const char *) NAMED("rmdir(_:)");
int apple_unlink(const char *) NAMED("unlink(_:)");
long apple_pread(int, void *, size_t, apple_off_t) NAMED("pread(_:_:_:_:)");
long apple_read(int, void *, size_t) NAMED("read(_:_:_:)");
long apple_write(int, const void *, size_t) NAMED("write(_:_:_:)");

// pwd.h

struct NAMED("passwd") apple_passwd {
    char *pw_name;
    char *pw_passwd;
    unsigned int pw_uid;
    unsigned int pw_gid;
    long pw_change;
    char *pw_class;
    char *pw_gecos;
    char *pw_dir;
    char *pw_shell;
    long pw_expire;
};

int apple_getpwuid_r(unsigned int, struct apple_passwd *, char *, size_t, struct apple_passwd **) NAMED("getpwuid_r(_:_:_:_:_:)");

// sys/stat.h, sys/mount.h; the constants of types are in Darwin.swift.

struct NAMED("stat") apple_stat {
    int st_dev;
    apple_mode_t st_mode;
    unsigned short st_nlink;
    unsigned long long st_ino;
    unsigned int st_uid;
    unsigned int st_gid;
    int st_rdev;
    struct apple_timespec st_atimespec;
    struct apple_timespec st_mtimespec;
    struct apple_timespec st_ctimespec;
    struct apple_timespec st_birthtimespec;
    apple_off_t st_size;
    long long st_blocks;
    int st_blksize;
    unsigned int st_flags;
    unsigned int st_gen;
};

struct NAMED("statfs") apple_statfs {
    unsigned int f_bsize;
    int f_iosize;
    unsigned long long f_blocks;
    unsigned long long f_bfree;
    unsigned long long f_bavail;
    unsigned long long f_files;
    unsigned long long f_ffree;
};

int apple_fstat(int, struct apple_stat *) NAMED("fstat(_:_:)");
int apple_lstat(const char *, struct apple_stat *) NAMED("lstat(_:_:)");
int apple_stat_of(const char *, struct apple_stat *) NAMED("stat(_:_:)");
int apple_mkdir(const char *, apple_mode_t) NAMED("mkdir(_:_:)");
int apple_utimensat(int, const char *, const struct apple_timespec[2], int) NAMED("utimensat(_:_:_:_:)");
int apple_statfs(const char *, struct apple_statfs *) NAMED("statfs(_:_:)");

// dirent.h

typedef struct NAMED("DIR") apple_dir {
    int __dd_fd;
} apple_dir;

struct NAMED("dirent") apple_dirent {
    unsigned long long d_ino;
    unsigned long long d_seekoff;
    unsigned short d_reclen;
    unsigned short d_namlen;
    unsigned char d_type;
    char d_name[1024];
};

apple_dir *apple_opendir(const char *) NAMED("opendir(_:)");
struct apple_dirent *apple_readdir(apple_dir *) NAMED("readdir(_:)");
int apple_closedir(apple_dir *) NAMED("closedir(_:)");

// sys/socket.h, netinet/in.h, netinet/tcp.h, poll.h

#define AF_INET 2
#define AF_INET6 30
#define SOCK_STREAM 1
#define SOL_SOCKET 0xffff
#define SO_REUSEADDR 0x0004
#define SO_LINGER 0x0080
#define SO_SNDBUF 0x1001
#define SO_RCVBUF 0x1002
#define SO_NOSIGPIPE 0x1022
#define MSG_OOB 0x1
#define MSG_DONTWAIT 0x80
#define SHUT_WR 1
#define SHUT_RDWR 2
#define IPPROTO_TCP 6
#define TCP_NODELAY 0x01
#define POLLIN 0x0001
#define POLLOUT 0x0004

struct NAMED("sockaddr") apple_sockaddr {
    unsigned char sa_len;
    apple_sa_family_t sa_family;
    char sa_data[14];
};

struct NAMED("sockaddr_storage") apple_sockaddr_storage {
    unsigned char ss_len;
    apple_sa_family_t ss_family;
    char __ss_pad1[6];
    long long __ss_align;
    char __ss_pad2[112];
};

struct NAMED("in_addr") apple_in_addr {
    unsigned int s_addr;
};

struct NAMED("sockaddr_in") apple_sockaddr_in {
    unsigned char sin_len;
    apple_sa_family_t sin_family;
    unsigned short sin_port;
    struct apple_in_addr sin_addr;
    char sin_zero[8];
};

struct NAMED("in6_addr") apple_in6_addr {
    union {
        unsigned char __u6_addr8[16];
        unsigned short __u6_addr16[8];
        unsigned int __u6_addr32[4];
    } __u6_addr;
};

struct NAMED("sockaddr_in6") apple_sockaddr_in6 {
    unsigned char sin6_len;
    apple_sa_family_t sin6_family;
    unsigned short sin6_port;
    unsigned int sin6_flowinfo;
    struct apple_in6_addr sin6_addr;
    unsigned int sin6_scope_id;
};

struct NAMED("linger") apple_linger {
    int l_onoff;
    int l_linger;
};

struct NAMED("pollfd") apple_pollfd {
    int fd;
    short events;
    short revents;
};

int apple_accept(int, struct apple_sockaddr *, apple_socklen_t *) NAMED("accept(_:_:_:)");
int apple_bind(int, const struct apple_sockaddr *, apple_socklen_t) NAMED("bind(_:_:_:)");
int apple_connect(int, const struct apple_sockaddr *, apple_socklen_t) NAMED("connect(_:_:_:)");
int apple_getpeername(int, struct apple_sockaddr *, apple_socklen_t *) NAMED("getpeername(_:_:_:)");
int apple_getsockname(int, struct apple_sockaddr *, apple_socklen_t *) NAMED("getsockname(_:_:_:)");
int apple_listen(int, int) NAMED("listen(_:_:)");
int apple_poll(struct apple_pollfd *, apple_nfds_t, int) NAMED("poll(_:_:_:)");
int apple_setsockopt(int, int, int, const void *, apple_socklen_t) NAMED("setsockopt(_:_:_:_:_:)");
int apple_shutdown(int, int) NAMED("shutdown(_:_:)");
int apple_socket(int, int, int) NAMED("socket(_:_:_:)");
long apple_recv(int, void *, size_t, int) NAMED("recv(_:_:_:_:)");
long apple_send(int, const void *, size_t, int) NAMED("send(_:_:_:_:)");
