/// How much media may take: of the disk, of the network, of time.
public struct MediaLimits: Sendable, Hashable {
    /// How many bytes all files may have together, parts of files included.
    ///
    /// What was not used for longest goes first; what is in use stays, even if the limit is exceeded meanwhile.
    public var maximumBytes: Int64 = 1 << 30

    /// How many bytes one file may have.
    public var maximumFileBytes: Int64 = 1 << 32

    /// How many bytes are left free on the disk.
    ///
    /// A download that would leave less is an error, once everything that is not in use has made room for it.
    public var freeSpaceReserve: Int64 = 1 << 28

    /// How many downloads run at a time; the others wait for their turn.
    public var parallelDownloads = 6

    /// How long a server may be silent.
    public var silence: Duration = .seconds(30)

    /// The defaults.
    public init() {}
}
