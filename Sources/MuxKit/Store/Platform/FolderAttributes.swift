import Foundation

/// The platform's attributes of a store's folder.
enum FolderAttributes {
    /// Excludes the folder from backups, and protects the files until the device's first unlock (not on
    /// macOS).
    ///
    /// The attributes are independent: a file system may support only one attribute.
    ///
    /// - Returns: Whether all attributes were set; `true` on systems without these attributes.
    static func set(on path: String) -> Bool {
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

    /// Restricts the folder to its owner (mode 0700).
    ///
    /// - Returns: Whether the mode was set.
    static func restrict(_ path: String) -> Bool {
        (try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: path)) != nil
    }

    /// The user's folder for `purpose`; `nil` if neither the environment nor the system names a folder.
    static func folder(for purpose: MuxStoreLocation.Purpose, _ environment: [String: String]) -> URL? {
        #if canImport(Darwin)
        let folder = purpose == .caches ? FileManager.SearchPathDirectory.cachesDirectory : .applicationSupportDirectory
        return FileManager.default.urls(for: folder, in: .userDomainMask).first
        #else
        // Without variables of the environment: the home folder that the password database has for the user.
        return MuxStoreLocation.xdg(purpose, environment)
            ?? POSIXFileSystem.home.flatMap { MuxStoreLocation.xdg(purpose, ["HOME": $0]) }
        #endif
    }
}
