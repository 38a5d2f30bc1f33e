public import Foundation

/// A key of a ``MultiplexerMap`` whose values are kept on disk.
///
/// Strings, numbers, `Bool`, `UUID` and `URL` are keys. A type of your own that is `LosslessStringConvertible` becomes one
/// by saying so, another by giving its text:
///
/// ```swift
/// extension UserID: MuxKey { var keyText: String { self.rawValue } }
/// ```
public protocol MuxKey: Hashable, Sendable {
    /// The key as text: the same in every launch, equal for equal keys, and different for different ones.
    ///
    /// Any text will do.
    var keyText: String { get }
}

extension MuxKey where Self: LosslessStringConvertible {
    /// The key's description, from which it could be made again.
    public var keyText: String { self.description }
}

extension String: MuxKey {
    /// The string itself.
    public var keyText: String { self }
}
extension Substring: MuxKey {}
extension Character: MuxKey {}
extension Bool: MuxKey {}
extension Int: MuxKey {}
extension Int8: MuxKey {}
extension Int16: MuxKey {}
extension Int32: MuxKey {}
extension Int64: MuxKey {}
extension UInt: MuxKey {}
extension UInt8: MuxKey {}
extension UInt16: MuxKey {}
extension UInt32: MuxKey {}
extension UInt64: MuxKey {}

extension Float: MuxKey {
    /// The number's description; that of zero has no sign, for zeros are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension Double: MuxKey {
    /// The number's description; that of zero has no sign, for zeros are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension UUID: MuxKey {
    /// The identifier in its usual form.
    public var keyText: String { self.uuidString }
}

extension URL: MuxKey {
    /// The locator, followed by its base if it has one: locators with different bases are different.
    public var keyText: String {
        guard let base = self.baseURL else { return self.absoluteString }
        return self.relativeString + " " + base.absoluteString  // a blank is in no locator
    }
}

/// A key as the tables store it: strings are compared by their bytes.
///
/// To Swift, strings that differ only in Unicode form are equal; to a server they are different keys.
@usableFromInline
package struct ExactKey<Key: Hashable & Sendable>: Hashable, Sendable {
    @usableFromInline package let key: Key

    @inlinable
    package init(_ key: Key) { self.key = key }

    @inlinable
    package static func == (a: ExactKey, b: ExactKey) -> Bool {
        if let a = a.key as? String, let b = b.key as? String { return Self.haveSameBytes(a, b) }
        guard a.key == b.key else { return false }
        guard Self.isText else { return true }
        return String(describing: a.key).utf8.elementsEqual(String(describing: b.key).utf8)
    }

    /// Whether two strings consist of the same bytes; does not compute canonical equivalence.
    @inlinable
    static func haveSameBytes(_ a: String, _ b: String) -> Bool {
        let answer = unsafe a.utf8.withContiguousStorageIfAvailable { a in
            unsafe b.utf8.withContiguousStorageIfAvailable { b in unsafe a.count == b.count && a.elementsEqual(b) }
        }
        return answer.flatMap(\.self) ?? a.utf8.elementsEqual(b.utf8)
    }

    /// Whether keys are of a type of Swift's own for text.
    @inlinable static var isText: Bool {
        Key.self == String.self || Key.self == Substring.self || Key.self == Character.self
    }

    @inlinable
    package func hash(into hasher: inout Hasher) { self.key.hash(into: &hasher) }

    /// That of the key, which may have a shorter way to it.
    @inlinable
    package var hashValue: Int { self.key.hashValue }
}
