/// What the file system says about a file.
package struct FileStatus: Sendable, Hashable {
    /// Tells files apart for as long as each of them exists or is open.
    package struct Identity: Sendable, Hashable {
        package var device: UInt64
        package var node: UInt64

        package init(device: UInt64, node: UInt64) {
            self.device = device
            self.node = node
        }
    }

    package var identity: Identity
    package var size: Int64
    /// How many names the file has; 0 for one that is open and has been removed or replaced.
    package var linkCount: UInt64
    /// The permission bits.
    package var mode: UInt32
    package var isFolder: Bool
    /// The time of modification, in nanoseconds since 1970.
    package var modified: Int64

    package init(
        identity: Identity,
        size: Int64,
        linkCount: UInt64,
        mode: UInt32,
        isFolder: Bool,
        modified: Int64 = 0
    ) {
        self.identity = identity
        self.size = size
        self.linkCount = linkCount
        self.mode = mode
        self.isFolder = isFolder
        self.modified = modified
    }
}
