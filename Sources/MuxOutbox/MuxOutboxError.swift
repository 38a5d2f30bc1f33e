public import Foundation
import MuxKit

/// An error of an outbox.
///
/// The description quotes no change, unless the description of an error of the app quotes a change.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum MuxOutboxError: Error, Sendable {
    /// The change cannot be encoded, or the `order` closure threw an error.
    case invalidChange(underlying: any Error)

    /// With this change, the size of all changes would exceed ``MuxOutboxPolicy/maximumBytes``.
    case tooLarge(bytes: Int, limit: Int)

    /// The outbox has at least ``MuxOutboxPolicy/maximumCount`` changes.
    case tooManyChanges(limit: Int)

    /// The session ended, or a sign-out ran, before the change was stored; the change is not kept.
    case sessionEnded

    /// The disk, or the session of the repository, could not be written or read.
    ///
    /// If ``MuxOutbox/add(_:)`` throws this error, the change is not kept. If the written bytes could not be
    /// removed, and the process ends before the next call of the outbox, the next launch may send the change.
    case notStored(underlying: any Error)

    /// A sign-out was refused (``MuxOutboxPolicy/SignOut/isRefused``), because the outbox has this number of
    /// changes.
    case changesPending(Int)
}

extension MuxOutboxError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A sentence for people, with the description of the underlying error, if any.
    public var errorDescription: String? {
        switch self {
        case .invalidChange(let error): ErrorText.joined("The change could not be prepared for sending.", error)
        case .tooLarge(let bytes, let limit):
            "The change has \(bytes) bytes; all changes together may have \(limit) bytes."
        case .tooManyChanges(let limit): "The outbox is full: the maximum is \(limit) changes."
        case .sessionEnded: "The user signed out before the change was stored."
        case .notStored(let error): ErrorText.joined("The outbox could not be read or written.", error)
        case .changesPending(let count):
            count == 1 ? "A change is not confirmed yet." : "\(count) changes are not confirmed yet."
        }
    }
}
