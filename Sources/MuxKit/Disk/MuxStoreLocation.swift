package import Foundation

/// Where a store's folder is when nobody says.
package enum MuxStoreLocation {
    /// What a folder is for.
    package enum Purpose: Sendable {
        /// What can be fetched again.
        case caches
        /// What cannot.
        case data
    }

    /// The user's folder for that purpose, then a name of the program, then "MuxKit".
    package static func standard(
        _ purpose: Purpose = .caches,
        environment: [String: String] = ProcessInfo.processInfo.environment,
        bundleIdentifier: String? = Bundle.main.bundleIdentifier,
        processName: String = ProcessInfo.processInfo.processName
    ) -> URL {
        let folder =
            switch purpose {
            case .caches: FolderAttributes.caches(environment)
            case .data: FolderAttributes.data(environment)
            }
        return (folder ?? FileManager.default.temporaryDirectory)
            .appending(component: self.folderName(for: bundleIdentifier ?? processName))
            .appending(component: "MuxKit")
    }

    /// The user's folder by the XDG Base Directory Specification 0.8, which says to ignore relative paths.
    package static func xdg(_ purpose: Purpose, _ environment: [String: String]) -> URL? {
        let (variable, path) =
            switch purpose {
            case .caches: ("XDG_CACHE_HOME", ".cache")
            case .data: ("XDG_DATA_HOME", ".local/share")
            }
        if let folder = environment[variable], folder.hasPrefix("/") {
            return URL(filePath: folder, directoryHint: .isDirectory)
        }
        guard let home = environment["HOME"], home.hasPrefix("/") else { return nil }
        return URL(filePath: home, directoryHint: .isDirectory).appending(path: path)
    }

    /// A name that is safe as one component of a path: of letters, digits and "-._", not hidden, not long, not empty.
    package static func folderName(for text: String) -> String {
        let safe = text.utf8.prefix(100).map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
                byte
            default: UInt8(ascii: "_")
            }
        }
        let name = String(decoding: safe, as: UTF8.self)
        guard !name.isEmpty else { return "_" }
        return name.hasPrefix(".") ? "_" + name : name
    }
}
