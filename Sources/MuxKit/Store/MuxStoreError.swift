public import Foundation

/// Why a store could not do what it was asked to.
///
/// Names no path, no key and no value, so it can be logged.
@nonexhaustive
public enum MuxStoreError: Error, Sendable, Hashable {
    /// The file system refused `operation` with the POSIX error number `code`.
    case fileSystem(_ operation: MuxStoreError.FileOperation, code: Int32)

    /// The value's bytes contain a raw line break, which would end its line on disk; JSON can be written without.
    case lineBreakInPayload

    /// The entry needs `bytes` bytes on disk, more than a record may have.
    case entryTooLarge(bytes: Int)

    /// The entry's date is not a number, or its time to live is negative.
    case timeOutOfRange

    /// The folder belongs to a newer version of the library, which is not to lose its data.
    case newerFormat

    /// The store is bounded, and newer entries of the same save took the room.
    case noRoom

    /// The store has a newer value of the entry, which another process saved.
    case newerValue

    /// Whether it can never become otherwise, because it is about the entry and not about the store.
    var isPermanent: Bool {
        switch self {
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange: true
        case .fileSystem, .newerFormat, .noRoom, .newerValue: false
        }
    }

    /// Whether it is about the store, so that other entries fail as well.
    var concernsAll: Bool {
        switch self {
        case .fileSystem, .newerFormat: true
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange, .noRoom, .newerValue: false
        }
    }
}

extension MuxStoreError {
    /// What ``MuxStore/save(_:durability:)`` throws when it kept all entries but some.
    ///
    /// A store that saves entries one by one, or has a limit, throws it so that the others count as saved:
    ///
    /// ```swift
    /// func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
    ///     var unsaved: [MuxStoreError.PartialSave.Failure] = []
    ///     for entry in entries {
    ///         do { try await self.write(entry) } catch { unsaved.append(.init(name: entry.name, error: error)) }
    ///     }
    ///     if !unsaved.isEmpty { throw MuxStoreError.PartialSave(unsaved) }
    /// }
    /// ```
    public struct PartialSave: Error, Sendable {
        /// An entry that could not be saved.
        public struct Failure: Sendable {
            /// The entry.
            public let name: MuxStoreKey
            /// Why: what the encoder or the store threw.
            public let error: any Error

            /// Names an entry that could not be saved, and says why.
            public init(name: MuxStoreKey, error: any Error) {
                self.name = name
                self.error = error
            }
        }

        /// The entries that were not kept, and why; all others of the call were.
        public var failures: [MuxStoreError.PartialSave.Failure]

        /// Names what was not kept.
        public init(_ failures: [MuxStoreError.PartialSave.Failure]) { self.failures = failures }
    }
}

extension MuxStoreError.PartialSave: LocalizedError {
    /// How many entries were not saved, and why the first one was not.
    public var errorDescription: String? {
        let count = self.failures.count
        let first = self.failures.first.map { " " + $0.error.localizedDescription } ?? ""
        return "\(count) \(count == 1 ? "entry was" : "entries were") not saved.\(first)"
    }
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
        case .noRoom: "The entry was not kept, because newer ones fill the store up to its limit."
        case .newerValue: "The store has a newer value, which another process saved."
        }
    }
}

extension MuxStoreError {
    /// What a store was doing to a file when it failed.
    @nonexhaustive
    public enum FileOperation: String, Sendable, Hashable {
        /// Opening a file, or making it.
        case open
        /// Reading from a file.
        case read
        /// Appending to a file.
        case write
        /// Asking for a file's size and identity.
        case status
        /// Cutting a file off.
        case truncate
        /// Waiting until a file's content is on the disk.
        case synchronize
        /// Waiting until a folder's list of names is on the disk.
        case synchronizeFolder
        /// Giving a file or folder another name.
        case rename
        /// Removing a file.
        case remove
        /// Removing an empty folder.
        case removeFolder
        /// Listing a folder.
        case list
        /// Making a folder.
        case makeFolder
        /// Waiting for the lock that keeps processes apart.
        case lock
        /// Giving that lock back.
        case unlock
        /// Telling the system how to treat a folder, such as to leave it out of backups.
        case mark
        /// Setting a file's time of modification.
        case setTime
        /// Asking how much space is free.
        case freeSpace
    }
}
