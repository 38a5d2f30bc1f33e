import Foundation
import MuxKit
import MuxTesting

/// The real file system with free space that the test sets.
///
/// The removal of a file adds its size to the free space.
final class CrampedFileSystem: FileSystem {
    private let base = POSIXFileSystem()
    private let free: Locked<Int64>

    init(_ free: Locked<Int64>) { self.free = free }

    func freeSpace(at path: String) -> Int64 { self.free.withLock { $0 } }

    func removeFile(_ path: String) throws(MuxStoreError) {
        let size = try self.base.status(at: path)?.size ?? 0
        try self.base.removeFile(path)
        self.free.withLock { $0 += size }
    }

    func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        try self.base.openFile(path, for: access)
    }
    func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        try self.base.read(file, at: offset, count: count)
    }
    func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        try self.base.append(bytes, to: file)
    }
    func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus { try self.base.status(of: file) }
    func status(at path: String) throws(MuxStoreError) -> FileStatus? { try self.base.status(at: path) }
    func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus? { try self.base.targetStatus(at: path) }
    func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError) { try self.base.truncate(file, to: size) }
    func synchronize(_ file: OpenFile) throws(MuxStoreError) { try self.base.synchronize(file) }
    func synchronizeFolder(_ path: String) throws(MuxStoreError) { try self.base.synchronizeFolder(path) }
    func move(_ path: String, to other: String) throws(MuxStoreError) { try self.base.move(path, to: other) }
    func removeFolder(_ path: String) throws(MuxStoreError) { try self.base.removeFolder(path) }
    func names(in path: String) throws(MuxStoreError) -> [String] { try self.base.names(in: path) }
    func makeFolder(_ path: String) throws(MuxStoreError) -> Bool { try self.base.makeFolder(path) }
    func setStoreAttributes(_ path: String) throws(MuxStoreError) { try self.base.setStoreAttributes(path) }
    func lock(_ file: OpenFile) throws(MuxStoreError) { try self.base.lock(file) }
    func unlock(_ file: OpenFile) throws(MuxStoreError) { try self.base.unlock(file) }
    func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool { try self.base.tryLock(file) }
    func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError) {
        try self.base.setModified(path, to: nanoseconds)
    }
}
