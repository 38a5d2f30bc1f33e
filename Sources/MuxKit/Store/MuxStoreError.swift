public import Foundation

/// An error of a store.
///
/// Contains no path, key or value, so the error can be logged.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum MuxStoreError: Error, Sendable, Hashable {
    /// The file system failed `operation` with the POSIX error number `code`.
    case fileSystem(_ operation: MuxStoreError.FileOperation, code: Int32)

    /// The payload contains a line break, which would end the payload's line on disk; JSON needs no raw line
    /// break.
    case lineBreakInPayload

    /// The entry exceeds the size limit of a record or of the folder; `bytes` is the size of the oversized
    /// part.
    case entryTooLarge(bytes: Int)

    /// The entry's date is not finite, or a duration of the entry is negative.
    case timeOutOfRange

    /// A newer version of the library wrote the data; this version neither uses nor changes the data.
    case newerFormat

    /// The store has no room for the entry.
    case noRoom

    /// The store has a newer value of the entry, which this process has not read, such as a value of another
    /// process.
    case newerValue

    /// The URL has no usable file path.
    ///
    /// The URL is not an absolute `file` URL in UTF-8, names the root, or has an escaped slash or zero byte,
    /// a user, a port, a query, a fragment, or a host other than `localhost`.
    case unusableURL

    /// No default folder: the system names no folder for the user's files.
    case noFolder

    /// A user other than the current user and the superuser owns the folder or file, or the group or others
    /// have write permission.
    ///
    /// The library did not use the folder or file.
    case notPrivate

    /// The name that is stored inside the file or folder differs from the requested name; the library neither
    /// used nor removed the file or folder.
    case otherName

    /// Whether the entry is the cause of the error, so a repetition with the same entry cannot succeed.
    var isPermanent: Bool {
        switch self {
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange: true
        case .fileSystem, .newerFormat, .noRoom, .newerValue, .unusableURL, .noFolder, .notPrivate, .otherName: false
        }
    }

    /// The description of the error in an event about the folder.
    var problem: String {
        guard case .fileSystem(.synchronizeFolder, let code) = self, POSIXFileSystem.isUnsupported(code) else {
            return self.sentence
        }
        return """
            The file system cannot synchronize folders (\(POSIXErrorText.of(code))). Files are kept, but the newest files may be \
            missing after a power failure.
            """
    }

    /// Whether the store is the cause of the error, so other entries would fail as well.
    var concernsAll: Bool {
        switch self {
        case .fileSystem, .newerFormat, .unusableURL, .noFolder, .notPrivate, .otherName: true
        case .lineBreakInPayload, .entryTooLarge, .timeOutOfRange, .noRoom, .newerValue: false
        }
    }
}

extension MuxStoreError {
    /// Thrown by ``MuxStore/save(_:durability:)`` if some entries, or all, were not saved.
    ///
    /// For stores that save entries separately, or have a limit. The other entries of the call count as
    /// saved.
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
            /// The reason why the entry was not saved.
            public let error: any Error

            /// Makes a failure.
            public init(name: MuxStoreKey, error: any Error) {
                self.name = name
                self.error = error
            }
        }

        /// The unsaved entries; all other entries of the call count as saved.
        public var failures: [MuxStoreError.PartialSave.Failure]

        /// Makes the error of a save that has not saved these entries.
        public init(_ failures: [MuxStoreError.PartialSave.Failure]) { self.failures = failures }
    }
}

extension MuxStoreError.PartialSave.Failure: CustomStringConvertible, CustomReflectable {
    /// Shows the ``description`` only: neither the key nor the value.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The error as a sentence, without the entry's name.
    public var description: String { self.error.sentence }
}

extension MuxStoreError.PartialSave: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// Shows the ``description`` only: keys may be names of people.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The number of unsaved entries, and the error of the first unsaved entry.
    public var errorDescription: String? {
        let count = self.failures.count
        let text = "\(count) \(count == 1 ? "entry was" : "entries were") not saved."
        return self.failures.first.map { ErrorText.joined(text, $0.error) } ?? text
    }
}

extension MuxStoreError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A description of the error, with a remedy if known.
    public var errorDescription: String? {
        switch self {
        case .fileSystem(let operation, let code):
            "The file system could not \(operation.words): \(POSIXErrorText.of(code))."
                + POSIXFileSystem.help(for: code)
        case .lineBreakInPayload: "The value to store contains a raw line break."
        case .entryTooLarge(let bytes): "The entry to store is too large (\(bytes) bytes)."
        case .timeOutOfRange: "The entry to store has no usable date or time to live."
        case .newerFormat: "The store was written by a newer version of the library."
        case .noRoom: "The entry was not kept, because the store has no room for the entry."
        case .newerValue: "The entry was not saved, because the store has a newer value."
        case .unusableURL: "The URL of the folder has no usable file path. Pass an absolute file URL (URL(filePath:))."
        case .noFolder: "The user has no home folder for the files. Pass a directory."
        case .notPrivate:
            """
            Another user owns the folder or file, or has write permission. The user of this program must be the owner, and no \
            other user may have write permission (chmod go-w).
            """
        case .otherName: "The file or folder belongs to another name and was not used."
        }
    }
}

extension MuxStoreError {
    /// A failed file operation.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum FileOperation: String, Sendable, Hashable {
        /// Opening or creating a file.
        case open
        /// Reading from a file.
        case read
        /// Writing to a file.
        case write
        /// Reading the status of a file, such as the size and the owner.
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
        /// Releasing the lock that excludes other processes.
        case unlock
        /// Setting a folder's attributes, such as its exclusion from backups.
        case mark
        /// Setting a file's modification time.
        case setTime
        /// Reading the free space.
        case freeSpace

        /// A verb phrase for the failed operation.
        var words: String {
            switch self {
            case .open: "open or create a file"
            case .read: "read from a file"
            case .write: "write to a file"
            case .status: "read the status of a file"
            case .truncate: "truncate a file"
            case .synchronize: "flush a file to the disk"
            case .synchronizeFolder: "flush a folder to the disk"
            case .rename: "rename a file"
            case .remove: "remove a file"
            case .removeFolder: "remove a folder"
            case .list: "list a folder"
            case .makeFolder: "create a folder"
            case .lock: "take the lock of a file"
            case .unlock: "release the lock of a file"
            case .mark: "set the attributes of a folder"
            case .setTime: "set the modification time of a file"
            case .freeSpace: "read the free space"
            }
        }
    }
}
