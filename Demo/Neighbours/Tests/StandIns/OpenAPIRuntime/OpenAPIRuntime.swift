public import Foundation
public import HTTPTypes
import Synchronization

/// The protocol of swift-openapi-runtime 1 with this name.
public protocol ClientTransport: Sendable {
    @concurrent
    func send(
        _ request: HTTPRequest,
        body: HTTPBody?,
        baseURL: URL,
        operationID: String
    ) async throws -> (HTTPResponse, HTTPBody?)
}

/// The protocol of swift-openapi-runtime 1 with this name.
public protocol ClientMiddleware: Sendable {
    @concurrent
    func intercept(
        _ request: HTTPRequest,
        body: HTTPBody?,
        baseURL: URL,
        operationID: String,
        next: @concurrent @Sendable (HTTPRequest, HTTPBody?, URL) async throws -> (HTTPResponse, HTTPBody?)
    ) async throws -> (HTTPResponse, HTTPBody?)
}

/// The used part of the body of swift-openapi-runtime 1.
public final class HTTPBody: Sendable, AsyncSequence {
    /// A piece.
    public typealias ByteChunk = ArraySlice<UInt8>
    /// A piece.
    public typealias Element = ByteChunk

    /// How often the body can be read.
    public enum IterationBehavior: Sendable { case single, multiple }

    /// The length.
    public enum Length: Sendable, Equatable {
        case unknown
        case known(Int64)
    }

    /// How often the body can be read.
    public let iterationBehavior: IterationBehavior
    /// The length.
    public let length: Length
    private let make: @Sendable () -> Iterator
    private let isRead = Atomic(false)

    /// Makes a body from a sequence.
    public init<Bytes: AsyncSequence & Sendable>(
        _ sequence: Bytes,
        length: Length,
        iterationBehavior: IterationBehavior
    ) where Bytes.Element == ByteChunk {
        self.length = length
        self.iterationBehavior = iterationBehavior
        self.make = {
            var iterator = sequence.makeAsyncIterator()
            return Iterator { try await iterator.next(isolation: #isolation) }
        }
    }

    /// Begins an iteration.
    public func makeAsyncIterator() -> Iterator {
        let isSecond = self.isRead.exchange(true, ordering: .relaxed)
        precondition(self.iterationBehavior == .multiple || !isSecond, "The body can be read once.")
        return self.make()
    }

    /// Iterates over the pieces.
    public struct Iterator: AsyncIteratorProtocol {
        let produce: () async throws -> ByteChunk?

        /// The next piece; `nil` at the end.
        public mutating func next() async throws -> ByteChunk? { try await self.produce() }
    }
}

@available(*, unavailable)
extension HTTPBody.Iterator: Sendable {}

/// The error of a generated client.
public struct ClientError: Error {
    /// The error of the transport, of a middleware or of the decoder.
    public var underlyingError: any Error

    /// Makes an error.
    public init(underlyingError: any Error) { self.underlyingError = underlyingError }
}
