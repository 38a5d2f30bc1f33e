public import Foundation

/// An error of a store.
///
/// Contains no path, key or value, so it can be logged.
@nonexhaustive
public enum MuxStoreError: Error, Sendable, Hashable {
    /// The file system failed `operation` with the POSIX error number `code`.
    case fileSystem(_ operation: MuxStoreError.FileOperation, code: Int32)

    /// The payload contains a line break, which would end its line on disk; JSON can be written without.
    case lineBreakInPayload

    /// The entry exceeds the size limit of a record; `bytes` is the size of the part that does.
    case entryTooLarge(bytes: Int)

    /// The entry's date is not finite, or one of its durations is negative.
    case timeOutOfRange

    /// The folder belongs to a newer version of the library, whose data must not be lost.
    case newerFormat

    /// The store is full: newer entries of the same save took the space.
    case noRoom

    /// Another process saved a newer value of the entry.
    case newerValue

    /// The URL has no usable file path: it is not an absolute `file` URL in UTF-8, or has a host, a query or a fragment, or names
    /// the root.
    case unusableURL

    /// There is no folder to use: neither the environment nor the password database names a home folder.
    case noFolder

    /// A folder or file is owned by another user, or its group or others may write to it. It was not used.
    case notPrivate

    /// A file or folder stores another full name than the one it was opened by. It was neither used nor removed.
    case otherName

    /// Whether a retry cannot succeed, because the entry is the cause and not the store.
    var isPermanent: Bool {
        switch self {
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange: true
        case .fileSystem, .newerFormat, .noRoom, .newerValue, .unusableURL, .noFolder, .notPrivate, .otherName: false
        }
    }

    /// A description for an event about the folder.
    var problem: String {
        guard case .fileSystem(.synchronizeFolder, let code) = self, POSIXFileSystem.isUnsupported(code) else {
            return self.sentence
        }
        return """
            The file system cannot synchronize folders (\(POSIXErrorText.of(code))). Files are kept, but the newest may be missing after \
            a power cut.
            """
    }

    /// Whether the store is the cause, so that other entries fail as well.
    var concernsAll: Bool {
        switch self {
        case .fileSystem, .newerFormat, .unusableURL, .noFolder, .notPrivate, .otherName: true
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange, .noRoom, .newerValue: false
        }
    }
}

extension MuxStoreError {
    /// Thrown by ``MuxStore/save(_:durability:)`` if it saved all entries except some.
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
        /// An entry that was not saved.
        public struct Failure: Sendable {
            /// The entry's name.
            public let name: MuxStoreKey
            /// The error of the encoder or the store.
            public let error: any Error

            /// Makes a failure.
            public init(name: MuxStoreKey, error: any Error) {
                self.name = name
                self.error = error
            }
        }

        /// The entries that were not saved; all others of the call were.
        public var failures: [MuxStoreError.PartialSave.Failure]

        /// Makes the error of a save that did not save these entries.
        public init(_ failures: [MuxStoreError.PartialSave.Failure]) { self.failures = failures }
    }
}

extension MuxStoreError.PartialSave.Failure: CustomStringConvertible, CustomReflectable {
    /// Shows what ``description`` shows and nothing more: neither the key nor the value.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// What is wrong, in a sentence, without the entry's name.
    public var description: String { self.error.sentence }
}

extension MuxStoreError.PartialSave: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// Shows what ``description`` shows and nothing more: keys may be names of people.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The number of entries that were not saved, and the error of the first one.
    public var errorDescription: String? {
        let count = self.failures.count
        let first = self.failures.first.map { " " + $0.error.sentence } ?? ""
        return "\(count) \(count == 1 ? "entry was" : "entries were") not saved.\(first)"
    }
}

extension MuxStoreError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A description in one sentence.
    public var errorDescription: String? {
        switch self {
        case .fileSystem(let operation, let code):
            "The file system could not \(operation.words): \(POSIXErrorText.of(code))."
                + POSIXFileSystem.help(for: code)
        case .lineBreakInPayload: "The value to store contains a raw line break."
        case .entryTooLarge(let bytes): "The entry to store is too large (\(bytes) bytes)."
        case .timeOutOfRange: "The entry to store has no usable date or time to live."
        case .newerFormat: "The store was written by a newer version of the library."
        case .noRoom: "The entry was not kept, because newer ones fill the store up to its limit."
        case .newerValue: "The store has a newer value, which another process saved."
        case .unusableURL: "The URL of the folder has no usable file path. Pass an absolute file URL (URL(filePath:))."
        case .noFolder: "The user has no home folder for the files. Pass a directory."
        case .notPrivate:
            """
            Another user owns the folder or file, or may write to it. It has to belong to the user of this program, and be \
            writable by nobody else (chmod go-w).
            """
        case .otherName: "The file or folder belongs to another name. It was not used."
        }
    }
}

extension MuxStoreError {
    /// The file operation that failed.
    @nonexhaustive
    public enum FileOperation: String, Sendable, Hashable {
        /// Opening or creating a file.
        case open
        /// Reading from a file.
        case read
        /// Appending to a file.
        case write
        /// Reading a file's size and identity.
        case status
        /// Truncating a file.
        case truncate
        /// Flushing a file's content to disk.
        case synchronize
        /// Flushing a folder's list of names to disk.
        case synchronizeFolder
        /// Renaming a file or folder.
        case rename
        /// Removing a file.
        case remove
        /// Removing an empty folder.
        case removeFolder
        /// Listing a folder.
        case list
        /// Creating a folder.
        case makeFolder
        /// Taking the lock that excludes other processes.
        case lock
        /// Releasing that lock.
        case unlock
        /// Setting a folder's attributes, such as its exclusion from backups.
        case mark
        /// Setting a file's modification time.
        case setTime
        /// Reading the free space.
        case freeSpace

        /// What could not be done.
        var words: String {
            switch self {
            case .open: "open or create a file"
            case .read: "read from a file"
            case .write: "write to a file"
            case .status: "look at a file"
            case .truncate: "shorten a file"
            case .synchronize: "bring a file safely to the disk"
            case .synchronizeFolder: "bring a folder safely to the disk"
            case .rename: "rename a file"
            case .remove: "remove a file"
            case .removeFolder: "remove a folder"
            case .list: "list a folder"
            case .makeFolder: "create a folder"
            case .lock: "take the lock between processes"
            case .unlock: "release the lock between processes"
            case .mark: "mark a folder as a cache"
            case .setTime: "set the time of a file"
            case .freeSpace: "read the free space"
            }
        }
    }
}
