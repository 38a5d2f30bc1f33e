import MuxKit

extension MediaFolder {
    /// A file that counts towards ``AsyncMedia/Limits/maximumBytes``.
    typealias Entry = (name: String, status: FileStatus)

    /// All complete and growing files, without sidecars.
    func entries() throws(MuxStoreError) -> [Entry] {
        var entries: [Entry] = []
        for name in try self.fileSystem.names(in: self.path) where !name.hasPrefix(MediaName.sidecarPrefix) {
            guard let status = try self.fileSystem.status(at: self.path(name)), !status.isFolder else { continue }
            entries.append((name, status))
        }
        return entries
    }

    // MARK: - In use

    /// Protects a file, complete or growing, from eviction.
    func beginUse(_ name: MediaName) { self.disk.withLock { $0.uses[name.file, default: 0] += 1 } }

    /// Ends one ``beginUse(_:)``.
    func endUse(_ name: MediaName) {
        self.disk.withLock { disk in
            guard let count = disk.uses[name.file] else { return }
            disk.uses[name.file] = count > 1 ? count - 1 : nil
        }
    }

    // MARK: - Room

    /// Evicts files, if necessary, so that `count` more bytes fit within the limit and on the disk.
    ///
    /// - Throws: ``MediaError``, such as ``MediaError/diskFull``, or ``Removed``.
    func reserve(_ count: Int64) throws {
        try self.withLockedDisk { disk in
            let (needed, overflow) = count.addingReportingOverflow(self.limits.freeSpaceReserve)
            var free = try self.fileSystem.freeSpace(at: self.path)
            let isShort = overflow || free < needed
            if isShort {
                // No file is evicted if all evictions together would not free enough space. A removal may
                // free more than the size: the rest of the last block, and the sidecar, for which 64 KB are
                // added.
                let possible = try self.evictable(disk).reduce(UInt64(clamping: free)) {
                    $0 &+ UInt64(clamping: $1.status.size) &+ 1 << 16
                }
                guard !overflow, possible >= UInt64(clamping: needed) else { throw MediaError.diskFull }
            }
            self.evict(toFree: count, &disk)
            guard isShort else { return }
            free = try self.fileSystem.freeSpace(at: self.path)
            for entry in try self.evictable(disk) where free < needed {
                try self.remove(entry, &disk)
                free = try self.fileSystem.freeSpace(at: self.path)
            }
            guard free >= needed else { throw MediaError.diskFull }
        }
    }

    /// Throws ``MediaError/tooSmall(minimum:)`` if a file is too small to be complete.
    func requireSize(of file: OpenFile) throws {
        let minimum = self.limits.minimumFileBytes
        guard minimum > 0 else { return }
        let size = try self.withLockedDisk { _ in try self.fileSystem.status(of: file).size }
        guard size >= minimum else { throw MediaError.tooSmall(minimum: minimum) }
    }

    /// Throws ``Removed`` if another program removed the growing file: a file without a name cannot be
    /// completed.
    func requireLinked(_ file: OpenFile) throws {
        guard try self.fileSystem.status(of: file).linkCount > 0 else { throw Removed() }
    }

    /// Appends bytes to a growing file.
    ///
    /// - Returns: The number of bytes written, at least one.
    func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        let count = try self.fileSystem.append(bytes, to: file)
        guard count > 0 else { throw .fileSystem(.write, code: POSIXFileSystem.ioError) }
        self.disk.withLock { $0.used += Int64(count) }
        return count
    }

    /// Evicts the least recently used files until `count` more bytes fit within
    /// ``AsyncMedia/Limits/maximumBytes``.
    ///
    /// A failed removal is not an error; the next call tries again.
    func evict(toFree count: Int64, _ disk: inout Disk) {
        let room = self.limits.maximumBytes.subtractingReportingOverflow(count)
        let allowed = room.overflow ? 0 : max(0, room.partialValue)
        guard disk.used > allowed, let entries = try? self.entries() else { return }
        disk.used = entries.reduce(0) { $0 + $1.status.size }
        guard disk.used > allowed, let evictable = try? self.evictable(disk) else { return }
        for entry in evictable where disk.used > allowed { try? self.remove(entry, &disk) }
    }

    private func remove(_ entry: Entry, _ disk: inout Disk) throws(MuxStoreError) {
        if entry.name.hasPrefix(MediaName.partialPrefix) {
            try self.remove(MediaName.sidecarPrefix + entry.name.dropFirst(MediaName.partialPrefix.count), &disk)
        }
        try self.remove(entry.name, &disk)
    }

    /// The files that are not in use, from the least to the most recently used.
    private func evictable(_ disk: Disk) throws(MuxStoreError) -> [Entry] {
        let uses = disk.uses
        return try self.entries().filter { uses[MediaName.file(of: $0.name)] == nil }
            .sorted { ($0.status.modified, $0.name) < ($1.status.modified, $1.name) }
    }

    // MARK: - Digests

    /// The SHA-256 of a file as 64 hexadecimal digits.
    func digest(of file: OpenFile) throws -> String {
        var hash = SHA256()
        var offset: Int64 = 0
        while true {
            let bytes = try MediaError.mapping { () throws(MuxStoreError) in
                try self.fileSystem.readAll(file, at: offset, count: 1 << 18)
            }
            guard !bytes.isEmpty else { return SHA256.text(hash.finalize()) }
            hash.update(bytes)
            offset += Int64(bytes.count)
        }
    }

    /// The SHA-256 of a complete file; `nil` without a file.
    func digest(of name: MediaName) throws -> String? {
        do {
            return try self.digest(of: self.fileSystem.openFile(self.path(name.file), for: .read))
        } catch MuxStoreError.fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            return nil
        } catch let error as MuxStoreError {
            throw MediaError(error)
        }
    }

    /// The progress of a file according to the files on disk.
    func progress(of name: MediaName) -> AsyncMedia.Progress {
        if let size = try? self.fileSystem.status(at: self.path(name.file))?.size, size >= self.limits.minimumFileBytes
        {
            return AsyncMedia.Progress(received: size, total: size, isComplete: true)
        }
        let note = DurableFile(name.sidecar, in: self.path, fileSystem: self.fileSystem)
        guard let content = try? note.read(), let sidecar = MediaSidecar(content),
            let size = try? self.fileSystem.status(at: self.path(name.partial))?.size
        else { return AsyncMedia.Progress() }
        return AsyncMedia.Progress(received: size, total: sidecar.total)
    }
}

extension AsyncMedia {
    /// Bounds on the use of disk, network and time by an ``AsyncMedia``.
    public struct Limits: Sendable, Hashable {
        /// The maximum total size of all files in bytes, including the bytes of incomplete downloads.
        ///
        /// The least recently used files are evicted first. Files in use are not evicted, even above the
        /// limit.
        public var maximumBytes: Int64

        /// The maximum size of one file in bytes.
        public var maximumFileBytes: Int64

        /// The minimum size of one file in bytes.
        ///
        /// A smaller file is probably an error page or a placeholder: the request throws
        /// ``MediaError/tooSmall(minimum:)``.
        public var minimumFileBytes: Int64

        /// The minimum free space on the disk in bytes that a download must leave.
        ///
        /// If the free space is too small for a download, files that are not in use are evicted, the least
        /// recently used files first; if the space still does not suffice, the download fails with
        /// ``MediaError/diskFull``.
        public var freeSpaceReserve: Int64

        /// The maximum number of simultaneous downloads, at least one; further downloads are queued.
        public var parallelDownloads: Int

        /// The maximum silence of the server; see ``HTTPTransportConfiguration/timeout``.
        public var silence: Duration

        /// Makes limits; each parameter has the name of a property.
        public init(
            maximumBytes: Int64 = 1 << 30,
            maximumFileBytes: Int64 = 1 << 32,
            minimumFileBytes: Int64 = 0,
            freeSpaceReserve: Int64 = 1 << 28,
            parallelDownloads: Int = 6,
            silence: Duration = .seconds(30)
        ) {
            self.maximumBytes = maximumBytes
            self.maximumFileBytes = maximumFileBytes
            self.minimumFileBytes = minimumFileBytes
            self.freeSpaceReserve = freeSpaceReserve
            self.parallelDownloads = parallelDownloads
            self.silence = silence
        }
    }
}
