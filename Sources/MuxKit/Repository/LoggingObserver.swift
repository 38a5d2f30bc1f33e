/// Prints what happens: to the unified log on Apple platforms, to standard error elsewhere.
///
/// ```swift
/// let repository = MuxRepository(observer: LoggingObserver())
/// ```
///
/// A line says what happened, in which multiplexer, and how long it took: `Users fetched in 12.3 ms`,
/// `Users fetchFailed (status 503) in 80.1 ms`. It never says a value, a
/// token or an error's text, and an entry's key only if you ask for it: keys may be names of people. In the unified log
/// failures are errors, and the rest are debug messages, which the system drops unless they are being read.
///
/// **Concurrent calls.** A line is written by the thread that made the decision, in one piece.
public struct LoggingObserver: MuxObserver {
    /// Whether hits are printed.
    public let observesHits: Bool

    private let showsKeys: Bool
    private let isIncluded: @Sendable (MuxEvent) -> Bool
    private let write: @Sendable (_ line: String, _ isTrouble: Bool) -> Void

    /// Makes an observer that prints.
    ///
    /// - Parameters:
    ///   - subsystem: Names the source of the lines: the subsystem in the unified log, the first word elsewhere.
    ///   - category: The category in the unified log, the second word elsewhere.
    ///   - showsKeys: Whether lines show the keys of entries.
    ///   - showsHits: Whether hits, of which there are most, are printed.
    ///   - isIncluded: Selects what is printed.
    public init(
        subsystem: String = "MuxKit",
        category: String = "events",
        showsKeys: Bool = false,
        showsHits: Bool = false,
        isIncluded: @escaping @Sendable (MuxEvent) -> Bool = { _ in true }
    ) {
        let log = SystemLog(subsystem: subsystem, category: category)
        self.init(showsKeys: showsKeys, showsHits: showsHits, isIncluded: isIncluded) { log.write($0, isTrouble: $1) }
    }

    /// Makes an observer that hands its lines on.
    package init(
        showsKeys: Bool,
        showsHits: Bool = true,
        isIncluded: @escaping @Sendable (MuxEvent) -> Bool,
        write: @escaping @Sendable (_ line: String, _ isTrouble: Bool) -> Void
    ) {
        self.showsKeys = showsKeys
        self.observesHits = showsHits
        self.isIncluded = isIncluded
        self.write = write
    }

    /// Prints a line about the event, if it is one to print.
    public func observe(_ event: MuxEvent) {
        guard self.observesHits || event.kind != .hit, self.isIncluded(event) else { return }
        self.write(self.line(event), event.kind.isTrouble)
    }

    private func line(_ event: MuxEvent) -> String {
        // Escaped as in source code, so that no key begins a line of its own.
        var line = (event.name ?? event.cacheKey).map { $0.debugDescription.dropFirst().dropLast() + " " } ?? ""
        if self.showsKeys, let key = event.key { line += "[\(key.debugDescription)] " }
        line += "\(event.kind)"
        if let reason = event.reason { line += " (\(reason))" }
        if let problem = event.problem { line += ": \(problem)" }
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
            .updateInterrupted, .storageFailed:
            true
        default: false
        }
    }
}
