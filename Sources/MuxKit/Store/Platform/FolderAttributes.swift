import Foundation

/// How a folder of cached values behaves on the platform at hand.
enum FolderAttributes {
    /// Keeps the folder out of backups and protects what is made in it until the device was first unlocked.
    ///
    /// One does not depend on the other: a file system may know backups and no protection.
    ///
    /// - Returns: Whether both worked; systems without these notions always agree.
    static func mark(_ path: String) -> Bool {
        #if canImport(Darwin)
        var url = URL(filePath: path, directoryHint: .isDirectory)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        let isExcluded = (try? url.setResourceValues(values)) != nil
        #if os(macOS)
        return isExcluded
        #else
        let protection = [FileAttributeKey.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication]
        let isProtected = (try? FileManager.default.setAttributes(protection, ofItemAtPath: path)) != nil
        return isExcluded && isProtected
        #endif
        #else
        return true
        #endif
    }

    /// Restricts the folder to its owner.
    ///
    /// - Returns: Whether that worked.
    static func restrict(_ path: String) -> Bool {
        (try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: path)) != nil
    }

    /// The folder that the user's cached files belong in, if the environment says or the system knows.
    static func caches(_ environment: [String: String]) -> URL? {
        #if canImport(Darwin)
        return FileManager.default.urls(for: .cachesDirectory, in: .userDomainMask).first
        #else
        return MuxStoreLocation.xdg(.caches, environment)
        #endif
    }

    /// The folder for the user's data that must not be lost, if the environment says or the system knows.
    static func data(_ environment: [String: String]) -> URL? {
        #if canImport(Darwin)
        return FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
        #else
        // Never the temporary folder, which belongs to everybody.
        let home = FileManager.default.homeDirectoryForCurrentUser
        return MuxStoreLocation.xdg(.data, environment) ?? home.appending(path: ".local/share")
        #endif
    }
}
