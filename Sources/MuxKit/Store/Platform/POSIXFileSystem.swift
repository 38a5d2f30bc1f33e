#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
import struct SwiftOverlayShims.timespec  // optimized builds need this import for the members of timespec (Swift 6.3.1)
#endif

/// The POSIX file system; ``call(_:_:)`` and ``read(_:_:)`` repeat calls that a signal interrupted (`EINTR`).
package struct POSIXFileSystem: FileSystem {
    package static let noSuchFile = ENOENT
    package static let ioError = EIO
    package static let staleFile = ESTALE
    package static let tooLarge = EFBIG
    package static let noSpace = ENOSPC
    package static let overQuota = EDQUOT
    package static let wouldBlock = EWOULDBLOCK
    package static let notAFolder = ENOTDIR

    /// Whether the error number means that no file can be created or changed at the path.
    package static func isUnwritable(_ code: Int32) -> Bool {
        [EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ENOSPC, EDQUOT].contains(code)
    }

    package static let noPermission = EACCES

    /// Whether the error number means a missing permission, or a file system that is only readable.
    package static func isForbidden(_ code: Int32) -> Bool { [EACCES, EPERM, EROFS].contains(code) }

    /// Whether the error number of a folder's synchronization means missing support.
    ///
    /// VirtualBox shares, older CIFS and some file systems in user space have no support.
    package static func isUnsupported(_ code: Int32) -> Bool { [EINVAL, ENOTSUP, EOPNOTSUPP, ENOSYS].contains(code) }

    /// The effective user of this process.
    package static var user: UInt32 { UInt32(geteuid()) }

    /// The home folder of the effective user in the password database; `nil` without a home folder.
    static var home: String? {
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 1 << 14) { buffer -> String? in
            guard let start = buffer.baseAddress else { return nil }
            var entry = unsafe passwd()
            var found = unsafe UnsafeMutablePointer<passwd>?.none
            guard unsafe getpwuid_r(geteuid(), &entry, start, buffer.count, &found) == 0, unsafe found != nil,
                let home = unsafe entry.pw_dir
            else { return nil }
            return unsafe String(cString: home)
        }
    }

    package init() {}

    /// A possible remedy for an error, as a sentence that follows another sentence; empty without a known
    /// remedy.
    static func help(for code: Int32) -> String {
        if code == Self.noSpace || code == Self.overQuota { return " Remove other files first." }
        return self.isForbidden(code) ? " Use a folder that is writable for this program." : ""
    }

    package func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        let flags =
            switch access {
            case .read: O_RDONLY
            case .append: O_RDWR | O_APPEND | O_CREAT
            case .create: O_RDWR | O_APPEND | O_CREAT | O_EXCL
            case .overwrite: O_WRONLY
            }
        let descriptor = try self.call(.open, on: path) { unsafe open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0o600) }
        let file = OpenFile(descriptor: descriptor, path: path) {
            // Releases the lock explicitly: between fork and exec, a child process shares the lock, so
            // closing this descriptor would not release the lock.
            _ = flock($0, LOCK_UN)
            _ = close($0)
        }
        if case .overwrite(let offset) = access, lseek(descriptor, off_t(offset), SEEK_SET) < 0 {
            throw .fileSystem(.open, code: errno)
        }
        return file
    }

    package func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        let (bytes, code) = unsafe self.read(count) { buffer in
            unsafe pread(file.descriptor, buffer.baseAddress, buffer.count, off_t(offset))
        }
        guard code == 0 else { throw .fileSystem(.read, code: code) }
        return bytes
    }

    package func readPromptly(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8]? {
        guard let read = unsafe PromptRead.function else { return nil }
        let (bytes, code) = unsafe self.read(count) { buffer in
            var part = unsafe iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
            return unsafe read(file.descriptor, &part, 1, off_t(offset), PromptRead.onlyFromMemory)
        }
        return code == 0 ? bytes : nil
    }

    /// The bytes that `call` has written into a buffer, and the error number of `call`; 0 without an error.
    private func read(_ count: Int, _ call: (UnsafeMutableBufferPointer<UInt8>) -> Int) -> ([UInt8], Int32) {
        var code: Int32 = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: max(count, 0)) { buffer, filled in
            var result = 0
            repeat {
                result = unsafe call(buffer)
                code = result < 0 ? errno : 0
            } while code == EINTR
            filled = max(result, 0)
        }
        return (bytes, code)
    }

    package func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        try self.call(.write) {
            unsafe bytes.withUnsafeBytes { unsafe write(file.descriptor, $0.baseAddress, $0.count) }
        }
    }

    package func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus {
        var info = stat()
        try self.call(.status) { unsafe fstat(file.descriptor, &info) }
        return FileStatus(info)
    }

    package func status(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.status(at: path) { unsafe lstat(path, &$0) }
    }

    package func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.status(at: path) { unsafe stat(path, &$0) }
    }

    private func status(at path: String, _ read: (inout stat) -> Int32) throws(MuxStoreError) -> FileStatus? {
        var info = stat()
        do {
            try self.call(.status, on: path) { read(&info) }
        } catch .fileSystem(.status, code: ENOENT), .fileSystem(.status, code: ENOTDIR) {
            return nil
        }
        return FileStatus(info)
    }

    package func isWritable(_ path: String) -> Bool {
        unsafe faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 || !Self.isForbidden(errno)
    }

    package func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError) {
        try self.call(.truncate) { ftruncate(file.descriptor, off_t(size)) }
    }

    package func synchronize(_ file: OpenFile) throws(MuxStoreError) {
        try self.synchronize(file.descriptor, .synchronize)
    }

    package func synchronizeFolder(_ path: String) throws(MuxStoreError) {
        let descriptor = try self.call(.synchronizeFolder, on: path) { unsafe open(path, O_RDONLY | O_CLOEXEC) }
        defer { _ = close(descriptor) }
        try self.synchronize(descriptor, .synchronizeFolder)
    }

    package func move(_ path: String, to other: String) throws(MuxStoreError) {
        try self.check(other, .rename)
        try self.call(.rename, on: path) { unsafe rename(path, other) }
    }

    package func removeFile(_ path: String) throws(MuxStoreError) {
        try self.call(.remove, on: path) { unsafe unlink(path) }
    }

    package func removeFolder(_ path: String) throws(MuxStoreError) {
        try self.call(.removeFolder, on: path) { unsafe rmdir(path) }
    }

    package func names(in path: String) throws(MuxStoreError) -> [String] {
        try self.check(path, .list)
        guard let folder = unsafe opendir(path) else { throw .fileSystem(.list, code: errno) }
        defer { unsafe closedir(folder) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = unsafe readdir(folder) else { break }
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        guard errno == 0 else { throw .fileSystem(.list, code: errno) }
        return names
    }

    package func makeFolder(_ path: String) throws(MuxStoreError) -> Bool {
        do {
            try self.call(.makeFolder, on: path) { unsafe mkdir(path, 0o700) }
            return true
        } catch .fileSystem(.makeFolder, code: EEXIST) {
            return false
        }
    }

    package func setStoreAttributes(_ path: String) throws(MuxStoreError) {
        guard FolderAttributes.set(on: path) else { throw .fileSystem(.mark, code: EIO) }
    }

    package func lock(_ file: OpenFile) throws(MuxStoreError) {
        try self.call(.lock) { flock(file.descriptor, LOCK_EX) }
    }

    package func unlock(_ file: OpenFile) throws(MuxStoreError) {
        try self.call(.unlock) { flock(file.descriptor, LOCK_UN) }
    }

    package func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool {
        do {
            try self.call(.lock) { flock(file.descriptor, LOCK_EX | LOCK_NB) }
            return true
        } catch .fileSystem(.lock, code: EWOULDBLOCK) {
            return false
        }
    }

    package func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError) {
        var time = timespec()
        time.tv_sec = .init(nanoseconds / 1_000_000_000)
        time.tv_nsec = .init(nanoseconds % 1_000_000_000)
        let times = [time, time]
        try self.call(.setTime, on: path) { unsafe utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) }
    }

    package func freeSpace(at path: String) throws(MuxStoreError) -> Int64 {
        #if canImport(Darwin)
        // Darwin's statvfs(3) has 32-bit counts, which is 16 TB in blocks of 4 KB; statfs(2) has 64-bit
        // counts.
        var info = statfs()
        try self.call(.freeSpace, on: path) { unsafe statfs(path, &info) }
        let size = UInt128(info.f_bsize)
        #else
        var info = statvfs()
        try self.call(.freeSpace, on: path) { unsafe statvfs(path, &info) }
        let size = UInt128(info.f_frsize)
        #endif
        return Self.freeSpace(blocks: UInt64(info.f_blocks), available: UInt64(info.f_bavail), size)
    }

    /// The available bytes; the maximum if the file system counts no blocks, as without a limit.
    package static func freeSpace(blocks: UInt64, available: UInt64, _ size: UInt128) -> Int64 {
        blocks == 0 && available == 0 ? .max : Int64(clamping: UInt128(available) * size)
    }

    /// Flushes the file and the drive's cache, as far as the file system permits.
    private func synchronize(_ descriptor: Int32, _ operation: MuxStoreError.FileOperation) throws(MuxStoreError) {
        #if canImport(Darwin)
        // fsync(2) on Apple systems does not flush the drive's cache. Not all file systems support
        // F_FULLFSYNC: after any error of F_FULLFSYNC, only fsync(2) runs.
        if fcntl(descriptor, F_FULLFSYNC) != -1 { return }
        #endif
        try self.call(operation) { fsync(descriptor) }
    }

    /// Rejects a path with a zero byte: the system would truncate the path at the zero byte.
    private func check(_ path: String, _ operation: MuxStoreError.FileOperation) throws(MuxStoreError) {
        guard !path.utf8.contains(0) else { throw .fileSystem(operation, code: EINVAL) }
    }

    /// Checks the path, and makes a system call; see ``call(_:_:)``.
    @discardableResult
    private func call(
        _ operation: MuxStoreError.FileOperation,
        on path: String,
        _ body: () -> Int32
    ) throws(MuxStoreError) -> Int32 {
        try self.check(path, operation)
        return try self.call(operation, body)
    }

    /// Makes a system call, and repeats the call after `EINTR`.
    ///
    /// - Parameters:
    ///   - operation: The operation, for the error.
    ///   - body: Makes the call; returns -1 and sets `errno` after an error.
    /// - Returns: The result of the call.
    /// - Throws: ``MuxStoreError/fileSystem(_:code:)`` with the error number.
    @discardableResult
    private func call<Value: SignedInteger>(
        _ operation: MuxStoreError.FileOperation,
        _ body: () -> Value
    ) throws(MuxStoreError) -> Value {
        while true {
            let result = body()
            guard result == -1 else { return result }
            guard errno == EINTR else { throw .fileSystem(operation, code: errno) }
        }
    }
}

/// `preadv2(2)` with a flag that limits the read to bytes in memory.
private enum PromptRead {
    typealias Function = @convention(c) (Int32, UnsafePointer<iovec>, Int32, off_t, Int32) -> Int

    /// `RWF_NOWAIT` of `linux/fs.h`.
    static let onlyFromMemory: Int32 = 8

    /// `nil` without the function: on systems without glibc, and with glibc before 2.26.
    #if canImport(Glibc)
    // Looked up at run time, because the module of glibc does not declare the function (Swift 6.3.1).
    static let function = unsafe dlsym(nil, "preadv2").map { unsafe unsafeBitCast($0, to: Function.self) }
    #else
    static let function: Function? = nil
    #endif
}

extension FileStatus {
    fileprivate init(_ info: stat) {
        self.init(
            identity: Identity(
                device: UInt64(truncatingIfNeeded: info.st_dev),
                node: UInt64(truncatingIfNeeded: info.st_ino)
            ),
            size: Int64(info.st_size),
            linkCount: UInt64(info.st_nlink),
            mode: UInt32(info.st_mode) & 0o7777,
            isFolder: UInt32(info.st_mode) & UInt32(S_IFMT) == UInt32(S_IFDIR),
            isLink: UInt32(info.st_mode) & UInt32(S_IFMT) == UInt32(S_IFLNK),
            owner: UInt32(info.st_uid),
            modified: Self.modified(info)
        )
    }

    private static func modified(_ info: stat) -> Int64 {
        #if canImport(Darwin)
        let time = info.st_mtimespec
        #else
        let time = info.st_mtim
        #endif
        return Int64(clamping: Int128(time.tv_sec) * 1_000_000_000 + Int128(time.tv_nsec))
    }
}
