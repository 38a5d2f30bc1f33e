/// Arithmetic on path texts.
package enum FilePath {
    /// The path of `name` in `folder`.
    package static func join(_ folder: String, _ name: String) -> String {
        folder.hasSuffix("/") ? folder + name : folder + "/" + name
    }

    /// The path of the folder that `path` is in; `nil` for a root and for a lone name.
    package static func parent(of path: String) -> String? {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return nil }
        guard slash > path.startIndex else { return path.utf8.count > 1 ? "/" : nil }
        return String(path[..<slash])
    }

    /// The last name of `path`.
    package static func name(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
        return String(path[path.utf8.index(after: slash)...])
    }
}
