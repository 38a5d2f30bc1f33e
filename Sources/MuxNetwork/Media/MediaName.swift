package import Foundation
import MuxKit

/// The names of the files that belong to a URL.
///
/// Made of a hash and the URL's extension: no URL can name another's file or one outside the folder, no name is too long
/// for a file system, and players recognise the file. A fragment is not part of what is fetched, and does not count.
package struct MediaName: Sendable {
    /// What is fetched.
    let url: URL
    /// The name of the complete file.
    package let file: String

    /// The names of the files of `url`.
    package init(_ url: URL) {
        self.url = url
        let text = url.absoluteString.prefix { $0 != "#" }
        let hash = SHA256.text(SHA256.hash(String(text))).prefix(32)
        let suffix = url.pathExtension.lowercased()
        let isPlain =
            (1...12).contains(suffix.utf8.count)
            && suffix.utf8.allSatisfy { (97...122).contains($0) || (48...57).contains($0) }
        self.file = isPlain ? "\(hash).\(suffix)" : String(hash)
    }

    /// The name of the file that grows while it is fetched.
    package var partial: String { Self.partialPrefix + self.file }

    /// The name of what is known of the growing file.
    package var sidecar: String { Self.sidecarPrefix + self.file }

    // A hash begins with a digit or a letter up to f, so no file is taken for another kind.
    static let partialPrefix = "partial-"
    static let sidecarPrefix = "state-"

    /// The name of the complete file that any of the names belongs to.
    static func file(of name: String) -> String {
        for prefix in [self.partialPrefix, self.sidecarPrefix] where name.hasPrefix(prefix) {
            return String(name.dropFirst(prefix.count))
        }
        return name
    }
}

extension MediaName: Hashable {
    package static func == (a: MediaName, b: MediaName) -> Bool { a.file == b.file }

    package func hash(into hasher: inout Hasher) { hasher.combine(self.file) }
}
