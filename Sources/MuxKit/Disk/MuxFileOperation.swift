/// What a store was doing to a file when it failed.
@nonexhaustive
public enum MuxFileOperation: String, Sendable, Hashable {
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
