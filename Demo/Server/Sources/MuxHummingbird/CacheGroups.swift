import Foundation
import Synchronization

/// The URLs of the stored responses of each group: RFC 9875.
///
/// A group cleared during the run of a handler makes the handler's response outdated.
final class CacheGroups: Sendable {
    enum Addition { case added, outdated, full }

    private struct State {
        var urls: [String: Set<URL>] = [:]
        /// The size of the URLs of all groups, in bytes.
        var size = 0
        /// The number of the last clearing.
        var number: UInt64 = 0
        /// The number of the last clearing of each group, while handlers run.
        var cleared: [String: UInt64] = [:]
        /// The number of the last clearing that ``cleared`` does not list.
        var unlisted: UInt64 = 0
        /// The number of running handlers.
        var running = 0
    }

    private let state = Mutex(State())
    private let limit: Int

    private static let listed = 1_000

    /// - Parameter limit: The size of the URLs, in bytes, above which all responses are removed: an evicted
    ///   response leaves its URL in the groups.
    init(limit: Int) { self.limit = limit }

    /// The memory of a URL in a group, in bytes, approximately.
    private static func size(_ url: URL) -> Int { url.absoluteString.utf8.count + 100 }

    /// Records the start of a handler.
    ///
    /// - Returns: The number of the last clearing, for ``add(_:_:_:)``.
    func begin() -> UInt64 {
        self.state.withLock { state in
            state.running += 1
            return state.number
        }
    }

    /// Records the end of a handler.
    func end() {
        self.state.withLock { state in
            state.running -= 1
            if state.running == 0 { state.cleared = [:] }
        }
    }

    /// Adds a URL to groups, for a handler that started at `began`.
    func add(_ names: [String], _ url: URL, _ began: UInt64) -> Addition {
        self.state.withLock { state in
            let isCurrent = names.allSatisfy { state.cleared[$0, default: state.unlisted] <= began }
            guard isCurrent else { return .outdated }
            for name in names where state.urls[name, default: []].insert(url).inserted { state.size += Self.size(url) }
            return state.size > self.limit ? .full : .added
        }
    }

    /// Clears a group.
    ///
    /// - Returns: The URLs of the group.
    func clear(_ name: String) -> Set<URL> {
        self.state.withLock { state in
            state.number += 1
            if state.running > 0 { state.cleared[name] = state.number }
            if state.cleared.count > Self.listed { (state.unlisted, state.cleared) = (state.number, [:]) }
            let urls = state.urls.removeValue(forKey: name) ?? []
            state.size -= urls.reduce(0) { $0 + Self.size($1) }
            return urls
        }
    }

    /// Removes all URLs.
    func clear() {
        self.state.withLock { state in
            state.urls = [:]
            state.size = 0
        }
    }

    /// The strings of a list (RFC 9651, section 3.1); other members are ignored.
    static func names(in text: String?) -> [String] {
        guard let text else { return [] }
        return FieldList.elements(of: text).compactMap { element -> String? in
            // A string may have parameters.
            guard element.first == "\"", let end = FieldList.endOfString(element) else { return nil }
            let string = element[element.index(after: element.startIndex)..<end]
            return String(string.replacing("\\\"", with: "\"").replacing("\\\\", with: "\\"))
        }
    }
}

/// The elements of a list in a header field: RFC 9110, section 5.6.1.
enum FieldList {
    /// The elements; commas in quoted strings do not count.
    static func elements(of text: String) -> [Substring] {
        var (isQuoted, isEscaped) = (false, false)
        let parts = text.split { character in
            if isEscaped {
                isEscaped = false
                return false
            }
            switch character {
            case "\\" where isQuoted: isEscaped = true
            case "\"": isQuoted.toggle()
            case ",": return !isQuoted
            default: break
            }
            return false
        }
        return parts.map { self.trimmed($0) }.filter { !$0.isEmpty }
    }

    static func trimmed(_ text: Substring) -> Substring {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        var text = text.drop(while: isBlank)
        while let last = text.last, isBlank(last) { text.removeLast() }
        return text
    }

    /// The place of the closing quotation mark of a string; `nil` without a closing mark.
    static func endOfString(_ text: Substring) -> Substring.Index? {
        var isEscaped = false
        for place in text.indices.dropFirst() {
            if isEscaped {
                isEscaped = false
            } else if text[place] == "\\" {
                isEscaped = true
            } else if text[place] == "\"" {
                return place
            }
        }
        return nil
    }
}
