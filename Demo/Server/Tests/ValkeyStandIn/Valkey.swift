package import MuxValkey
public import NIOCore

/// A stand-in for the official client (`valkey-io/valkey-swift`, 1.x), with the names that
/// `ValkeyClientStore` uses.
///
/// With the stand-in, the sample compiles and runs without a resolution of that package.
public final class ValkeyClient: Sendable {
    private let configuration: MuxValkey.Configuration

    package init(_ configuration: MuxValkey.Configuration) { self.configuration = configuration }

    private func connect(onMessage: @escaping @Sendable ([Reply]) -> Void = { _ in }) async throws -> Connection {
        let connection = try await Connection.open(
            self.configuration.addresses[0],
            self.configuration,
            onMessage: onMessage
        )
        _ = try await connection.reply(to: ["HELLO", "3"].map { ByteBuffer(string: $0) })
        return connection
    }

    /// Runs a script on the server.
    @discardableResult
    public func eval(script: String, keys: [ValkeyKey] = [], args: [String] = []) async throws -> RESPToken {
        let connection = try await self.connect()
        defer { connection.close() }
        let words = ["EVAL", script, "\(keys.count)"] + keys.map(\.text) + args
        return RESPToken(try await connection.reply(to: words.map { ByteBuffer(string: $0) }))
    }

    /// Calls `process` with the messages on channels after the server has confirmed the subscription.
    public func subscribe<Value>(
        to channels: String...,
        process: (ValkeySubscription) async throws -> sending Value
    ) async throws -> Value {
        let (stream, continuation) = AsyncThrowingStream.makeStream(of: ValkeySubscriptionMessage.self)
        let connection = try await self.connect { message in
            guard message.count == 3, message[0].text == "message", case .bytes(let content) = message[2] else {
                return
            }
            continuation.yield(
                ValkeySubscriptionMessage(channel: message[1].text ?? "", message: String(buffer: content))
            )
        }
        defer { connection.close() }
        _ = try await connection.reply(to: (["SUBSCRIBE"] + channels).map { ByteBuffer(string: $0) })
        connection.ended.whenComplete { _ in continuation.finish(throwing: ValkeyError.closed) }
        return try await process(ValkeySubscription(stream: stream))
    }
}

/// The name of a key.
public struct ValkeyKey: Sendable {
    fileprivate let text: String

    /// Makes a name.
    public init(_ text: String) { self.text = text }
}

/// A message of a subscription.
public struct ValkeySubscriptionMessage: Sendable {
    /// The channel of the message.
    public let channel: String
    /// The text of the message.
    public let message: String
}

/// The messages of a subscription.
public struct ValkeySubscription: AsyncSequence, Sendable {
    fileprivate let stream: AsyncThrowingStream<ValkeySubscriptionMessage, any Error>

    /// Makes an iterator.
    public func makeAsyncIterator() -> AsyncThrowingStream<ValkeySubscriptionMessage, any Error>.Iterator {
        self.stream.makeAsyncIterator()
    }
}

/// A reply of the server.
public struct RESPToken: Sendable {
    /// The kinds of reply.
    public enum Value: Sendable {
        case bulkString(ByteBuffer)
        case number(Int64)
        case null
        case array(Array)
        case simpleString(ByteBuffer)
    }

    /// Several replies.
    public struct Array: Sequence, Sendable {
        fileprivate let tokens: [RESPToken]

        /// Makes an iterator.
        public func makeIterator() -> IndexingIterator<[RESPToken]> { self.tokens.makeIterator() }
    }

    private let reply: Reply

    fileprivate init(_ reply: Reply) { self.reply = reply }

    /// The contents of the reply.
    public var value: Value {
        switch self.reply {
        case .bytes(let bytes): .bulkString(bytes)
        case .number(let number): .number(number)
        case .list(let replies): .array(Array(tokens: replies.map { RESPToken($0) }))
        case .nothing, .failure, .message: .null
        }
    }
}
