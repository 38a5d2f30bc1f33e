public import Foundation

/// Why a store could not do what it was asked to.
///
/// Names no path, no key and no value, so it can be logged.
@nonexhaustive
public enum MuxStoreError: Error, Sendable, Hashable {
    /// The file system refused `operation` with the POSIX error number `code`.
    case fileSystem(_ operation: MuxFileOperation, code: Int32)

    /// The value's bytes contain a raw line break, which would end its line on disk; JSON can be written without.
    case lineBreakInPayload

    /// The entry needs `bytes` bytes on disk, more than a record may have.
    case entryTooLarge(bytes: Int)

    /// The entry's date is not a number, or its time to live is negative.
    case timeOutOfRange

    /// The folder belongs to a newer version of the library, which is not to lose its data.
    case newerFormat
}

extension MuxStoreError: LocalizedError {
    /// What went wrong, in one sentence.
    public var errorDescription: String? {
        switch self {
        case .fileSystem(let operation, let code):
            "The store's file system refused \(operation.rawValue): \(POSIXFileSystem.text(of: code)) (\(code))."
        case .lineBreakInPayload: "The value to store contains a raw line break."
        case .entryTooLarge(let bytes): "The entry to store is too large (\(bytes) bytes)."
        case .timeOutOfRange: "The entry to store has no usable date or time to live."
        case .newerFormat: "The store was written by a newer version of the library."
        }
    }
}
