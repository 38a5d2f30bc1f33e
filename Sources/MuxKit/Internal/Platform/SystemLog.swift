#if canImport(os)
import os

/// The unified log.
///
/// Implemented according to Apple's documentation (https://developer.apple.com/documentation/os/logger).
/// `.ci/apple-lines` compiles the type on Linux against stubs; no Apple SDK has compiled the type.
package struct SystemLog: Sendable {
    private let logger: Logger

    package init(subsystem: String, category: String) {
        self.logger = Logger(subsystem: subsystem, category: category)
    }

    /// Writes a line without redaction: the line must not contain private data.
    package func write(_ line: String, isTrouble: Bool) {
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
package struct SystemLog: Sendable {
    private let prefix: String

    package init(subsystem: String, category: String) {
        self.prefix = "\(subsystem) \(category): "
    }

    /// Writes a line; `isTrouble` has no effect here.
    package func write(_ line: String, isTrouble: Bool) {
        try? FileHandle.standardError.write(contentsOf: Data("\(self.prefix)\(line)\n".utf8))
    }
}
#endif

extension SystemLog {
    /// Whether the library was built for debugging.
    package static var isDebugBuild: Bool {
        #if DEBUG
        true
        #else
        false
        #endif
    }
}
