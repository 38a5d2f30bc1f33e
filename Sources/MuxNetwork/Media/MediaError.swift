public import Foundation
public import MuxKit

/// Why there is no file.
///
/// Failures of the transport and statuses are ``HTTPError``s; cancellation is always `CancellationError`. The descriptions contain
/// no URL and no path.
@nonexhaustive
public enum MediaError: Error, Sendable, Equatable {
    /// The URL's scheme is neither `http` nor `https` nor `file`.
    case unsupportedURL

    /// The answer ended early, without an error.
    case brokeOff

    /// The server's answers contradict each other, or the announced length.
    case contradiction

    /// The file is larger than ``AsyncMedia/Limits/maximumFileBytes``.
    case tooLarge(limit: Int64)

    /// The file is smaller than ``AsyncMedia/Limits/minimumFileBytes``.
    case tooSmall(minimum: Int64)

    /// The response is of a media type that the ``AsyncMedia`` does not accept; `nil` if it is of none.
    ///
    /// The page of a captive portal, for example, is of the type `text/html`.
    case wrongType(HTTPMediaType?)

    /// The file does not have the expected digest.
    case wrongDigest

    /// The disk is full, or would be fuller than ``AsyncMedia/Limits/freeSpaceReserve`` permits.
    case diskFull

    /// The file could not be read or written.
    case disk(MuxStoreError)

    /// Another process, or another ``AsyncMedia`` with the same folder, is fetching the file.
    case fetchedElsewhere

    /// Another program removed the file, or its folder, again and again while it was fetched.
    case removed
}

extension MediaError: RetryableError {
    /// Transient for ``brokeOff``, ``fetchedElsewhere`` and ``removed``.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .brokeOff, .fetchedElsewhere, .removed: .transient
        default: .permanent
        }
    }
}

extension MediaError: ClassifiedError {
    package var classification: ErrorClassification? { self == .brokeOff ? .reason(.connection) : nil }
}

extension MediaError: LocalizedError, CustomStringConvertible {
    /// A sentence for a person.
    public var errorDescription: String? { self.description }

    /// A sentence for a person.
    public var description: String {
        switch self {
        case .unsupportedURL: "The address is not one of the web."
        case .brokeOff: "The answer ended early."
        case .contradiction: "The server's answers contradict each other."
        case .tooLarge(let limit): "The file is larger than \(limit) bytes."
        case .tooSmall(let minimum): "The file is smaller than \(minimum) bytes."
        case .wrongType(let type?): "The response is of the unexpected type \(type.essence)."
        case .wrongType(nil): "The response has no media type."
        case .wrongDigest: "The file is not the one that was expected."
        case .diskFull: "The disk is full."
        case .disk(let error): error.errorDescription ?? "The disk refused."
        case .fetchedElsewhere: "The file is being fetched by another process."
        case .removed: "The file was removed."
        }
    }

    /// The error for a failure of the file system.
    init(_ error: MuxStoreError) {
        switch error {
        case .fileSystem(_, code: POSIXFileSystem.noSpace), .fileSystem(_, code: POSIXFileSystem.overQuota):
            self = .diskFull
        default: self = .disk(error)
        }
    }
}
