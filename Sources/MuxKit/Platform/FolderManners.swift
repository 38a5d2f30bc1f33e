import Foundation

/// How a folder of cached values behaves on the platform at hand.
enum FolderManners {
    /// Keeps the folder out of backups and protects what is made in it until the device was first unlocked.
    ///
    /// - Returns: Whether that worked; systems without these notions always agree.
    static func mark(_ path: String) -> Bool {
        #if canImport(Darwin)
        var url = URL(filePath: path, directoryHint: .isDirectory)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        guard (try? url.setResourceValues(values)) != nil else { return false }
        #if !os(macOS)
        let protection = [FileAttributeKey.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication]
        guard (try? FileManager.default.setAttributes(protection, ofItemAtPath: path)) != nil else { return false }
        #endif
        #endif
        return true
    }

    /// The folder that the user's cached files belong in, if the environment says or the system knows.
    static func caches(_ environment: [String: String]) -> URL? {
        #if canImport(Darwin)
        return FileManager.default.urls(for: .cachesDirectory, in: .userDomainMask).first
        #else
        return self.folder("XDG_CACHE_HOME", orInHome: ".cache", environment)
        #endif
    }

    /// The folder that the user's data which must not be lost belong in, if the environment says or the system knows.
    static func data(_ environment: [String: String]) -> URL? {
        #if canImport(Darwin)
        return FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
        #else
        return self.folder("XDG_DATA_HOME", orInHome: ".local/share", environment)
        #endif
    }

    #if !canImport(Darwin)
    private static func folder(_ variable: String, orInHome path: String, _ environment: [String: String]) -> URL? {
        // XDG Base Directory Specification 0.8: a relative path is invalid and to be ignored.
        if let folder = environment[variable], folder.hasPrefix("/") {
            return URL(filePath: folder, directoryHint: .isDirectory)
        }
        guard let home = environment["HOME"], home.hasPrefix("/") else { return nil }
        return URL(filePath: home, directoryHint: .isDirectory).appending(path: path)
    }
    #endif
}
