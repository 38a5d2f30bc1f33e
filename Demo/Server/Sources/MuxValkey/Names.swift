import MuxKit
import NIOCore

/// The names of keys in the engine, and the messages about them.
///
/// All keys of a store share a hash tag, so that a script may use several keys in a cluster.
package struct Names: Sendable {
    /// The prefix of all keys, with the hash tag.
    package let prefix: String

    /// - Parameter prefix: Any text.
    package init(prefix: String) {
        var encoded = ""
        for scalar in prefix.unicodeScalars {
            switch scalar {
            case "{": encoded += "%7B"
            case "}": encoded += "%7D"
            case "%": encoded += "%25"
            default: encoded.unicodeScalars.append(scalar)
            }
        }
        self.prefix = "{mux:\(encoded)}:"
    }

    /// The channel of changes.
    var channel: ByteBuffer { ByteBuffer(string: self.prefix + "changes") }

    /// The first part of the channels of connections: a connection is the subscriber of its own channel.
    var connections: ByteBuffer { ByteBuffer(string: self.prefix + "m:") }

    /// The channel of a connection.
    func connection(_ name: String) -> ByteBuffer { ByteBuffer(string: self.prefix + "m:" + name) }

    /// A key that shows which engine of a cluster has the keys of the store.
    package var probe: String { self.prefix + "probe" }

    /// The key of the tenure, which changes after every possible loss of data; the first epoch of each entry.
    var tenure: ByteBuffer { ByteBuffer(string: self.prefix + "tenure") }

    /// The keys of an entry, its claim and its epochs.
    func keys(_ name: MuxShared.Name) -> [ByteBuffer] {
        [self.entry(name.key), self.claim(name.key), self.tenure] + name.scopes.compactMap { self.epoch($0) }
    }

    /// The keys that are deleted to end a scope.
    func keys(ending scope: MuxShared.Scope) -> [ByteBuffer] {
        if case .entry(let key) = scope { return [self.entry(key), self.claim(key)] }
        return self.epoch(scope).map { [$0] } ?? []
    }

    private func entry(_ key: MuxStoreKey) -> ByteBuffer { self.key("v", Self.text(key)) }

    private func claim(_ key: MuxStoreKey) -> ByteBuffer { self.key("c", Self.text(key)) }

    private func epoch(_ scope: MuxShared.Scope) -> ByteBuffer? { Self.encoded(scope).map { self.key("e", $0) } }

    private func key(_ kind: String, _ name: String) -> ByteBuffer {
        ByteBuffer(string: "\(self.prefix)\(kind):\(name)")
    }

    // MARK: - Texts

    private static func text(_ key: MuxStoreKey) -> String {
        "\(key.domain.utf8.count):\(key.domain)\(key.key.map { "=" + $0 } ?? "")"
    }

    private static func key(_ text: String) -> MuxStoreKey? {
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")), let count = Int(text[..<colon]), count >= 0
        else {
            return nil
        }
        let rest = text.utf8[text.utf8.index(after: colon)...]
        guard rest.count >= count, let domain = String(rest.prefix(count)) else { return nil }
        let key = rest.dropFirst(count)
        guard let first = key.first else { return MuxStoreKey(domain: domain) }
        guard first == UInt8(ascii: "="), let key = String(key.dropFirst()) else { return nil }
        return MuxStoreKey(domain: domain, key: key)
    }

    private static func encoded(_ scope: MuxShared.Scope) -> String? {
        switch scope {
        case .entry(let key): "k" + self.text(key)
        case .tag(let tag): "t" + tag
        case .domain(let domain): "d" + domain
        case .everything: "a"
        @unknown default: nil
        }
    }

    private static func scope(_ text: Substring) -> MuxShared.Scope? {
        let rest = String(text.unicodeScalars.dropFirst())
        return switch text.unicodeScalars.first {
        case "k": self.key(rest).map { .entry($0) }
        case "t": .tag(rest)
        case "d": .domain(rest)
        case "a": rest.isEmpty ? .everything : nil
        default: nil
        }
    }

    // MARK: - Messages

    /// Encodes a change and the machine that made the change.
    static func message(_ change: MuxShared.Change, from machine: String) -> ByteBuffer? {
        let text: String? =
            switch change {
            case .stored(let key): "s" + Self.text(key)
            case .released(let key): "r" + Self.text(key)
            case .invalidated(let scope): Self.encoded(scope).map { "i" + $0 }
            case .unknown, .emptied: nil
            }
        return text.map { ByteBuffer(string: "\(machine) \($0)") }
    }

    /// The change of a message; `.unknown` for an unknown message, `nil` for an invalidation by this machine.
    static func change(_ message: ByteBuffer, for machine: String) -> MuxShared.Change? {
        let text = String(buffer: message)
        guard let space = text.utf8.firstIndex(of: UInt8(ascii: " ")) else { return .unknown }
        let kindAndName = text[text.utf8.index(after: space)...]
        let name = String(kindAndName.unicodeScalars.dropFirst())
        switch kindAndName.unicodeScalars.first {
        case "s": return Self.key(name).map { .stored($0) } ?? .unknown
        case "r": return Self.key(name).map { .released($0) } ?? .unknown
        case "i":
            guard let scope = Self.scope(name[...]) else { return .unknown }
            return text[..<space].utf8.elementsEqual(machine.utf8) ? nil : .invalidated(scope)
        default: return .unknown
        }
    }
}
