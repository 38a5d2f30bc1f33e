/// What a file is opened for.
package enum FileAccess: Sendable, Hashable {
    /// Reading; the file must exist.
    case read
    /// Reading, and writing at the end; made with mode 0600 if it does not exist.
    case append
    /// Like ``append``, but it is an error if the file exists.
    case create
}
