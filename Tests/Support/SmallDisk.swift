package import MuxKit

/// The real file system with a limited number of bytes, in blocks of 4 KB.
///
/// A removed file takes space until it is closed, as on a real disk.
package final class SmallDisk: FileSystem {
    private struct State: Sendable {
        struct Handle: Sendable {
            weak var file: OpenFile?
        }
        var capacity: Int64
        var handles: [Handle] = []
        var refusals = 0
    }

    private let base = POSIXFileSystem()
    private let root: String
    private let code: Int32
    private let countsBlocks: Bool
    private let state: Locked<State>

    /// Makes a disk of `capacity` bytes for the files below `root`; a write that does not fit fails with
    /// `code`.
    ///
    /// With `countsBlocks: false`, the free space is unknown.
    package init(_ root: String, capacity: Int64, code: Int32, countsBlocks: Bool = true) {
        self.root = root
        self.code = code
        self.countsBlocks = countsBlocks
        self.state = Locked(State(capacity: capacity))
    }

    /// The number of writes that did not fit.
    package var refusals: Int { self.state.withLock { $0.refusals } }

    /// The size of the disk in bytes.
    package var capacity: Int64 {
        get { self.state.withLock { $0.capacity } }
        set { self.state.withLock { $0.capacity = newValue } }
    }

    /// The bytes in use.
    package var used: Int64 {
        var sizes: [FileStatus.Identity: Int64] = [:]
        self.measure(self.root, &sizes)
        let files = self.state.withLock { state in
            state.handles.removeAll { $0.file == nil }
            return state.handles.compactMap(\.file)
        }
        for file in files {
            if let status = try? self.base.status(of: file) { sizes[status.identity] = status.size }
        }
        return sizes.values.reduce(0) { $0 + ($1 + 4_095) / 4_096 * 4_096 }
    }

    private func measure(_ path: String, _ sizes: inout [FileStatus.Identity: Int64]) {
        for name in (try? self.base.names(in: path)) ?? [] {
            let inner = FilePath.join(path, name)
            guard let status = try? self.base.status(at: inner) else { continue }
            if status.isFolder { self.measure(inner, &sizes) } else { sizes[status.identity] = status.size }
        }
    }

    package func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        // Overwritten bytes take no space; the rest of the last block is not used.
        let isOver = self.isOver(file)
        let count = isOver ? bytes.count : min(bytes.count, Int(max(0, self.capacity - self.used)))
        guard count > 0 || bytes.isEmpty else {
            self.state.withLock { $0.refusals += 1 }
            throw .fileSystem(.write, code: self.code)
        }
        return try self.base.append(bytes.prefix(count), to: file)
    }

    private let overwriting = Locked<Set<Int32>>([])

    private func isOver(_ file: OpenFile) -> Bool { self.overwriting.withLock { $0.contains(file.descriptor) } }

    package func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        let file = try self.base.openFile(path, for: access)
        self.state.withLock { $0.handles.append(State.Handle(file: file)) }
        self.overwriting.withLock { files in
            if case .overwrite = access { files.insert(file.descriptor) } else { files.remove(file.descriptor) }
        }
        return file
    }

    package func freeSpace(at path: String) -> Int64 { self.countsBlocks ? max(0, self.capacity - self.used) : .max }
    package func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        try self.base.read(file, at: offset, count: count)
    }
    package func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus { try self.base.status(of: file) }
    package func status(at path: String) throws(MuxStoreError) -> FileStatus? { try self.base.status(at: path) }
    package func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError) {
        try self.base.truncate(file, to: size)
    }
    package func synchronize(_ file: OpenFile) throws(MuxStoreError) { try self.base.synchronize(file) }
    package func synchronizeFolder(_ path: String) throws(MuxStoreError) { try self.base.synchronizeFolder(path) }
    package func move(_ path: String, to other: String) throws(MuxStoreError) { try self.base.move(path, to: other) }
    package func removeFile(_ path: String) throws(MuxStoreError) { try self.base.removeFile(path) }
    package func removeFolder(_ path: String) throws(MuxStoreError) { try self.base.removeFolder(path) }
    package func names(in path: String) throws(MuxStoreError) -> [String] { try self.base.names(in: path) }
    package func makeFolder(_ path: String) throws(MuxStoreError) -> Bool { try self.base.makeFolder(path) }
    package func setStoreAttributes(_ path: String) throws(MuxStoreError) { try self.base.setStoreAttributes(path) }
    package func lock(_ file: OpenFile) throws(MuxStoreError) { try self.base.lock(file) }
    package func unlock(_ file: OpenFile) throws(MuxStoreError) { try self.base.unlock(file) }
    package func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool { try self.base.tryLock(file) }
    package func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError) {
        try self.base.setModified(path, to: nanoseconds)
    }
}
