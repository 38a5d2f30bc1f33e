/// What goes wrong with a call to a ``RecordingFileSystem``.
package enum FileFault: Sendable {
    /// The call is refused with a POSIX error number.
    case refuse(Int32)
    /// A write takes only so many bytes; other calls are as usual.
    case shorten(to: Int)
    /// A write takes only so many bytes, and every later call is refused with the error number.
    case fail(after: Int, Int32)
    /// The closure runs, then the call; it may end the process.
    case perform(@Sendable () -> Void)
    /// The closure runs after a write of so many bytes, or before any other call; it may end the process.
    case performInWrite(after: Int, @Sendable () -> Void)
}
