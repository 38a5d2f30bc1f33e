/// Prints events: to the unified log on Apple platforms, to standard error on other platforms.
///
/// ```swift
/// let repository = MuxRepository(observer: LoggingObserver())
/// ```
///
/// A line contains the event's source, kind, reason and duration: `Users fetched in 12.3 ms`,
/// `Users fetchFailed (status 503) in 80.1 ms`. A line never contains a value or a token. Apart from errors
/// of stores, a line never contains the text of an error. A line contains the key of an entry only with
/// `showsKeys`, because keys may be names of people. In the unified log, events that may need attention, such
/// as failures, are errors. Other events are debug messages, which the system drops unless the log is being
/// read.
///
/// **Concurrent calls.** The thread that reports an event writes the complete line in one call.
public struct LoggingObserver: MuxObserver {
    /// Whether hits are printed.
    public let observesHits: Bool

    let showsKeys: Bool
    let isIncluded: @Sendable (MuxEvent) -> Bool
    let write: @Sendable (_ line: String, _ isTrouble: Bool) -> Void
}

extension LoggingObserver {
    /// Makes an observer that prints events.
    ///
    /// - Parameters:
    ///   - subsystem: The source of the lines: the subsystem in the unified log, the first word on other
    ///     platforms.
    ///   - category: The category in the unified log, the second word on other platforms.
    ///   - showsKeys: Whether lines show the keys of entries.
    ///   - showsHits: Whether hits are printed; usually most events are hits.
    ///   - isIncluded: Selects the events to print.
    public init(
        subsystem: String = "MuxKit",
        category: String = "events",
        showsKeys: Bool = false,
        showsHits: Bool = false,
        isIncluded: @escaping @Sendable (MuxEvent) -> Bool = { _ in true }
    ) {
        let log = SystemLog(subsystem: subsystem, category: category)
        self.init(observesHits: showsHits, showsKeys: showsKeys, isIncluded: isIncluded) {
            log.write($0, isTrouble: $1)
        }
    }

    /// Prints a line about the event, if the event is selected.
    public func observe(_ event: MuxEvent) {
        guard self.observesHits || event.kind != .hit, self.isIncluded(event) else { return }
        self.write(self.line(event), event.kind.isTrouble)
    }

    private func line(_ event: MuxEvent) -> String {
        // Escaped as in source code, so that a name or a key cannot start a new line.
        var line = (event.name ?? event.cacheKey).map { $0.debugDescription.dropFirst().dropLast() + " " } ?? ""
        if self.showsKeys, let key = event.key { line += "[\(key.debugDescription)] " }
        line += "\(event.kind)"
        // A reason or a problem may contain an external text.
        if let reason = event.reason.flatMap({ ErrorText.line("\($0)") }) { line += " (\(reason))" }
        if let problem = event.problem.flatMap(ErrorText.line) { line += ": \(problem)" }
        guard let duration = event.duration else { return line }
        let tenths = duration.saturatedNanoseconds / 100_000
        return line + " in \(tenths / 10).\(abs(tenths % 10)) ms"
    }
}

extension MuxEvent.Kind {
    /// Whether the event may need attention.
    fileprivate var isTrouble: Bool {
        switch self {
        case .fetchFailed, .loadFailed, .evictedUnsaved, .cacheKeyShared, .repositoryMismatch, .updateFailed,
            .updateInterrupted, .storageFailed, .sharedStoreUnavailable, .notShared, .changeFailed, .changesDropped:
            true
        case .hit, .joined, .missed, .loaded, .fetchStarted, .fetchRetried, .fetched, .servedStale, .fenceDropped,
            .evicted, .sessionEnded, .dependencyAwaited, .queued, .updateStarted, .updated, .sharedStoreAvailable,
            .changeAdded, .changeSending, .changeDelayed, .changeConfirmed:
            false
        }
    }
}

/// Logs the misuse of a repository in a debug build, if the repository has no observer.
///
/// Each sentence is written once for each repository, up to 100 sentences. A sentence contains no value, no
/// key of an entry and no token.
package final class MisuseLog: Sendable {
    package enum Misuse: Sendable, Hashable {
        /// Two living multiplexers have this `cacheKey`.
        case cacheKeyShared(String)
        /// An entry on disk of this `cacheKey` cannot be decoded as the type.
        case undecodable(String, type: String)
        /// The tokens in a token store cannot be read; the text contains the reason.
        case damagedTokens(String)
        /// The multiplexer with this name and its dependency have different repositories.
        case repositoryMismatch(String?)
    }

    /// A log that writes to the system's log; `nil` in a release build.
    package static var standard: MisuseLog? {
        guard SystemLog.isDebugBuild else { return nil }
        let log = SystemLog(subsystem: "MuxKit", category: "misuse")
        return MisuseLog { log.write($0, isTrouble: true) }
    }

    /// The maximum number of sentences.
    private static let limit = 100

    private let sink: @Sendable (String) -> Void
    private let written = Locked<Set<Misuse>>([])

    /// Makes a log that passes sentences to `sink`.
    package init(_ sink: @escaping @Sendable (String) -> Void) { self.sink = sink }

    /// Writes a sentence about `misuse`, unless the sentence was written before.
    func write(_ misuse: Misuse) {
        let isNew = self.written.withLock { $0.count < Self.limit && $0.insert(misuse).inserted }
        if isNew { self.sink(misuse.sentence) }
    }
}

extension MisuseLog.Misuse {
    fileprivate var sentence: String {
        switch self {
        case .cacheKeyShared(let name):
            "Two multiplexers have the cacheKey \(Self.shown(name)) and share entries on disk. The later save wins."
        case .undecodable(let name, let type):
            """
            An entry on disk of \(Self.shown(name)) cannot be decoded as \(type) and is ignored. Raise the schemaVersion of \
            the policy, or add a migration.
            """
        case .damagedTokens(let text): text
        case .repositoryMismatch(let name):
            """
            \(name.map { "The multiplexer \(Self.shown($0))" } ?? "A multiplexer") has another repository than its \
            dependency. Requests fail, because a sign-out would reach only one repository.
            """
        }
    }

    /// A name in quotes, without the suffix for the viewer that an HTTP client appends to the name.
    private static func shown(_ name: String) -> String { String(name.prefix { $0 != "\u{1f}" }).debugDescription }
}
