/// How a ``MultiplexerMap`` gathers keys that are asked for at about the same time into one fetch.
///
/// **Concurrent calls.** A key that is on its way in a batch is joined by every request, and goes into no other batch.
///
/// **Cancellation.** A batch is cancelled when nobody waits for any of its keys any more.
///
/// **After a failure.** A key that the reply has not fails alone; an error of the batch is an error of each of its keys.
public struct MuxBatching: Sendable, Hashable {
    /// How long the first key of a batch waits for others; 5 milliseconds.
    public var window: Duration

    /// How many keys a batch has at most, at least 1; 100.
    ///
    /// A full batch does not wait.
    public var maximumSize: Int

    /// Makes a description of batches.
    ///
    /// - Parameters:
    ///   - window: How long the first key of a batch waits for others.
    ///   - maximumSize: How many keys a batch has at most.
    public init(window: Duration = .milliseconds(5), maximumSize: Int = 100) {
        self.window = window
        self.maximumSize = maximumSize
    }
}
