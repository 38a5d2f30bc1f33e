public import Foundation
public import MuxKit

/// The error of a failed request for a file.
///
/// Transport failures and statuses are ``HTTPError``s; a cancelled caller throws `CancellationError`. A
/// description may contain the method, the host and the path of the URL, but neither the query nor the path
/// of a local file.
///
/// ```swift
/// } catch MediaError.wrongDigest {
///     report("The file was changed on its way.")
/// } catch let error as MediaError {
///     // "GET example.org/film.mp4 failed. The disk has too little free space."
///     log(error.localizedDescription)
/// }
/// ```
public struct MediaError: Error, Sendable, Equatable {
    /// The reason of a ``MediaError``.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Reason: Sendable, Equatable {
        /// The URL's scheme is neither `http` nor `https` nor `file`, or the URL has no host.
        case unsupportedURL

        /// The response ended early, without an error of the transport.
        case brokeOff

        /// The server's responses contradict each other, or a body is longer than announced.
        case contradiction

        /// The file is larger than ``AsyncMedia/Limits/maximumFileBytes``.
        case tooLarge(limit: Int64)

        /// The file is smaller than ``AsyncMedia/Limits/minimumFileBytes``.
        case tooSmall(minimum: Int64)

        /// The ``AsyncMedia`` does not accept the response's media type; `nil` without a valid
        /// `Content-Type`.
        ///
        /// The page of a captive portal, for example, is of the type `text/html`.
        case wrongType(HTTPMediaType?)

        /// The file does not have the expected digest, or the expected digest is not 64 hexadecimal digits.
        case wrongDigest

        /// The disk is full, a quota of the user is exhausted, or the download would leave less free space
        /// than ``AsyncMedia/Limits/freeSpaceReserve``.
        case diskFull

        /// A file or folder could not be read or written, or belongs to another user or another object, or
        /// another user may write to the file or folder.
        case disk(MuxStoreError)

        /// Another process, or another ``AsyncMedia`` with the same folder, is downloading the file.
        case fetchedElsewhere

        /// Another program removed the file or its folder repeatedly during the request, or the app removed
        /// the file at the end of the download.
        case removed
    }

    /// The reason.
    public let reason: Reason

    /// The method, the host and the path, such as `GET example.org/film.mp4`, without query, fragment, user
    /// and password; `nil` for an error without a single file.
    public internal(set) var request: String?

    /// Makes an error without a request.
    public init(_ reason: Reason) { self.reason = reason }

    /// Compares the reasons.
    public static func == (a: MediaError, b: MediaError) -> Bool { a.reason == b.reason }

    /// Whether `error` is a ``MediaError`` with the same reason, for `catch MediaError.wrongDigest`.
    public static func ~= (pattern: MediaError, error: any Error) -> Bool { error as? MediaError == pattern }
}

extension MediaError {
    /// ``Reason/unsupportedURL``.
    public static let unsupportedURL = MediaError(.unsupportedURL)

    /// ``Reason/brokeOff``.
    public static let brokeOff = MediaError(.brokeOff)

    /// ``Reason/contradiction``.
    public static let contradiction = MediaError(.contradiction)

    /// ``Reason/tooLarge(limit:)``.
    public static func tooLarge(limit: Int64) -> MediaError { MediaError(.tooLarge(limit: limit)) }

    /// ``Reason/tooSmall(minimum:)``.
    public static func tooSmall(minimum: Int64) -> MediaError { MediaError(.tooSmall(minimum: minimum)) }

    /// ``Reason/wrongType(_:)``.
    public static func wrongType(_ type: HTTPMediaType?) -> MediaError { MediaError(.wrongType(type)) }

    /// ``Reason/wrongDigest``.
    public static let wrongDigest = MediaError(.wrongDigest)

    /// ``Reason/diskFull``.
    public static let diskFull = MediaError(.diskFull)

    /// ``Reason/disk(_:)``.
    public static func disk(_ error: MuxStoreError) -> MediaError { MediaError(.disk(error)) }

    /// ``Reason/fetchedElsewhere``.
    public static let fetchedElsewhere = MediaError(.fetchedElsewhere)

    /// ``Reason/removed``.
    public static let removed = MediaError(.removed)
}

extension MediaError: RetryableError {
    /// Transient for ``brokeOff``, ``fetchedElsewhere`` and ``removed``.
    public var retryAdvice: RetryAdvice {
        switch self.reason {
        case .brokeOff, .fetchedElsewhere, .removed: .transient
        default: .permanent
        }
    }
}

extension MediaError: ClassifiedError {
    package var classification: ErrorClassification? { self == .brokeOff ? .reason(.connection) : nil }
}

extension MediaError: LocalizedError, CustomStringConvertible {
    /// The same as ``description``.
    public var errorDescription: String? { self.description }

    /// A text for a user, with the method, the host and the path of the request, if known.
    public var description: String { (self.request.map { "\($0) failed. " } ?? "") + self.reason.sentence }

    /// Returns the error with a request for its text; an existing request is kept.
    func naming(_ url: URL) -> MediaError {
        // A `data:` URL contains a file, and a `mailto:` URL an address.
        guard HTTPOrigin(url) != nil else { return self }
        var error = self
        error.request = error.request ?? MediaDownload.request(url)
        return error
    }

    init(_ error: MuxStoreError) {
        switch error {
        case .fileSystem(_, code: POSIXFileSystem.noSpace), .fileSystem(_, code: POSIXFileSystem.overQuota):
            self.init(.diskFull)
        default: self.init(.disk(error))
        }
    }

    /// Runs `body`, and maps an error of the file system.
    static func mapping<R>(_ body: () throws(MuxStoreError) -> R) throws(MediaError) -> R {
        do throws(MuxStoreError) { return try body() } catch { throw MediaError(error) }
    }
}

extension MediaError.Reason {
    fileprivate var sentence: String {
        switch self {
        case .unsupportedURL: "The URL has no host, or its scheme is neither http nor https nor file."
        case .brokeOff: "The response ended early."
        case .contradiction: "The responses of the server contradict each other."
        case .tooLarge(let limit): "The file is larger than \(limit) bytes."
        case .tooSmall(let minimum): "The file is smaller than \(minimum) bytes."
        case .wrongType(let type?): "The response is of the unexpected type \(type.essence)."
        case .wrongType(nil): "The response has no valid media type."
        case .wrongDigest: "The digest of the file differs from the expected digest."
        case .diskFull: "The disk has too little free space."
        case .disk(let error): error.errorDescription ?? "The file could not be read or written."
        case .fetchedElsewhere: "Another process or object is downloading the file."
        case .removed: "The file was removed during the request."
        }
    }
}
