// swift-format-ignore-file
public import Foundation

@preconcurrency public protocol HashFunction: Sendable {
    associatedtype Digest: CryptoKit.Digest
    init()
    mutating func update(bufferPointer: UnsafeRawBufferPointer)
    func finalize() -> Digest
}

public protocol Digest: Hashable, ContiguousBytes, CustomStringConvertible, Sequence, Sendable where Element == UInt8 {}

public struct SHA256: HashFunction, Sendable {
    public typealias Digest = SHA256Digest
    public init() { fatalError() }
    public mutating func update(bufferPointer: UnsafeRawBufferPointer) { fatalError() }
    public func finalize() -> SHA256Digest { fatalError() }
}

public struct SHA256Digest: CryptoKit.Digest {
    public var description: String { fatalError() }
    public func makeIterator() -> Array<UInt8>.Iterator { fatalError() }
    public func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R { fatalError() }
}
