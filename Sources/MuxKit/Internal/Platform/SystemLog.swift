#if canImport(os)
import os

/// The unified log.
///
/// https://developer.apple.com/documentation/os/logger. Written from the documentation; not compiled where this package is developed.
struct SystemLog: Sendable {
    private let logger: Logger

    init(subsystem: String, category: String) {
        self.logger = Logger(subsystem: subsystem, category: category)
    }

    /// Writes a line, which has nothing in it that the log would have to hide.
    func write(_ line: String, isTrouble: Bool) {
        if isTrouble {
            self.logger.error("\(line, privacy: .public)")
        } else {
            self.logger.debug("\(line, privacy: .public)")
        }
    }
}
#else
import Foundation

/// Standard error.
struct SystemLog: Sendable {
    private let prefix: String

    init(subsystem: String, category: String) {
        self.prefix = "\(subsystem) \(category): "
    }

    /// Writes a line; trouble looks the same here.
    func write(_ line: String, isTrouble: Bool) {
        try? FileHandle.standardError.write(contentsOf: Data("\(self.prefix)\(line)\n".utf8))
    }
}
#endif
