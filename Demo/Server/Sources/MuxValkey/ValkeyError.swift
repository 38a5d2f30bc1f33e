public import Foundation
public import MuxKit

/// An error of a call to an engine.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum ValkeyError: Error, Sendable, Equatable {
    /// No connection exists, for this reason.
    case notConnected(String)
    /// The connection ended before the reply; the effect of the command is unknown.
    case disconnected(String)
    /// The engine has refused the command.
    case refused(ServerFailure)
    /// The received bytes are not RESP, version 3.
    case notAReply(String)
    /// A value exceeds ``MuxValkey/Configuration/maximumPayloadBytes``, or a reply exceeds a reply with such
    /// a value.
    case tooLarge(limit: Int)
    /// Too many commands wait for their replies.
    case tooManyCommands(limit: Int)
    /// The store was closed.
    case closed
}

/// The error reply of an engine.
public struct ServerFailure: Error, Sendable, Hashable {
    /// The first word, such as `OOM` or `NOPERM`.
    public let code: String
    /// The entire text.
    public let text: String
    /// Whether the engine refused the connection, and not a command.
    var refusesConnection = false

    /// Whether another engine has the keys, or the engine may not write the keys.
    var isOfAnotherEngine: Bool {
        // Redis 6.2 reports READONLY within the failure of a script.
        ["MOVED", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS"].contains(self.code)
            || self.text.contains("-READONLY ")
    }

    /// Whether the failure concerns all keys, and not only the keys of the command.
    var isOfEngine: Bool {
        self.refusesConnection || self.isOfAnotherEngine
            || ["NOAUTH", "WRONGPASS", "LOADING", "BUSY", "MISCONF", "ASK", "TRYAGAIN"].contains(self.code)
    }

    /// The code, if engines use this code: another program on the port may send any text.
    var knownCode: String? {
        // The text of an engine for a command within a script.
        if self.text.contains("ACL failure") || self.text.contains("can't run this command") { return "NOPERM" }
        return Self.codes.contains(self.code) ? self.code : nil
    }

    private static let codes: Set<String> = [
        "ASK", "BUSY", "CLUSTERDOWN", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM", "NOPROTO",
        "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS", "WRONGTYPE",
    ]

    /// Omits the repeated arguments of some engines' errors, which may contain a password.
    init(_ text: String) {
        let end = text.range(of: "with args beginning with")?.lowerBound ?? text.endIndex
        self.text = String(text[..<end])
        self.code = String(text.prefix { $0 != " " })
    }
}

extension ValkeyError: MuxShared.Failure {
    /// `false` for the refusal of a command because of its keys, and for a large value.
    public var isConnectivityFailure: Bool {
        switch self {
        case .refused(let failure): failure.isOfEngine
        case .tooLarge: false
        case .notConnected, .disconnected, .notAReply, .tooManyCommands, .closed: true
        }
    }

    /// The engine's code, such as `WRONGPASS`, or a word or two, such as `connection refused`.
    public var reason: String {
        switch self {
        case .refused(let failure): failure.knownCode ?? "refused"
        case .notConnected(let text) where text.contains("Connection refused"): "connection refused"
        case .notConnected: "not connected"
        case .disconnected: "disconnected"
        case .notAReply: "not a reply"
        case .tooLarge: "too large"
        case .tooManyCommands: "too many commands"
        case .closed: "closed"
        }
    }
}

extension ValkeyError: LocalizedError {
    /// The description.
    public var errorDescription: String? { self.description }
}

extension ValkeyError: CustomStringConvertible {
    /// A sentence that describes the error.
    public var description: String {
        switch self {
        case .notConnected(let reason): "The engine is not connected: \(reason)."
        case .disconnected(let reason): "The connection to the engine ended before its reply: \(reason)."
        case .refused(let failure): "The engine refused a command: \(failure.text)"
        case .notAReply(let reason): "The engine, or what listens in its place, sent no RESP 3: \(reason)."
        case .tooLarge(let limit): "A value, or a reply of the engine, has more than \(limit) bytes."
        case .tooManyCommands(let limit): "\(limit) commands wait for the engine already."
        case .closed: "The store was closed."
        }
    }
}
