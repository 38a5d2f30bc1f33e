import Synchronization

/// Sends each element to the receivers of its topic, in the order of their registration and outside its lock.
@usableFromInline
package final class Broadcast<Topic: Hashable & Sendable, Element: Sendable>: Sendable {
    @usableFromInline package typealias Receiver = @Sendable (Element) -> Void

    @usableFromInline let topics = Locked<[Topic: Subscribers<Receiver>]>([:])

    package init() {}

    /// Registers `receiver` for the elements of `topic`.
    ///
    /// - Returns: A closure that removes the receiver. A call of the receiver that has begun goes on.
    package func add(to topic: Topic, _ receiver: @escaping Receiver) -> @Sendable () -> Void {
        let id = self.topics.withLock { $0[topic, default: Subscribers()].add(receiver) }
        return { [weak self] in
            let removed = self?.topics.withLock { topics in
                let removed = topics[topic]?.remove(id)
                if topics[topic]?.isEmpty ?? false { topics[topic] = nil }
                return removed
            }
            withExtendedLifetime(removed) {}
        }
    }

    /// Sends `element` to the receivers of `topic`.
    @inlinable
    package func send(_ element: Element, to topic: Topic) {
        for receiver in self.receivers(of: topic) { receiver(element) }
    }

    /// Sends `element` to the receivers of every topic.
    package func sendToAll(_ element: Element) {
        let receivers = self.topics.withLock { topics in topics.values.flatMap(\.inOrder) }
        for receiver in receivers { receiver(element) }
    }

    /// The current receivers of `topic`.
    @inlinable
    package func receivers(of topic: Topic) -> [Receiver] {
        self.topics.withLock { topics in topics.isEmpty ? [] : topics[topic]?.inOrder ?? [] }
    }

    /// The number of receivers of all topics.
    package var count: Int { self.topics.withLock { topics in topics.values.reduce(0) { $0 + $1.count } } }
}

extension Broadcast where Element == Void {
    /// A stream of the elements of `topic`, of which the newest is buffered; it ends when its consumer does.
    package func stream(of topic: Topic) -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let remove = self.add(to: topic) { continuation.yield() }
        continuation.onTermination = { _ in remove() }
        return stream
    }
}

/// Receivers in the order of their registration: a value, for the locked state of the sender.
@usableFromInline
package struct Subscribers<Receiver: Sendable>: Sendable {
    private var receivers: [UInt64: Receiver] = [:]

    package init() {}

    package var isEmpty: Bool { self.receivers.isEmpty }

    package var count: Int { self.receivers.count }

    /// - Returns: The identity of the registration, unique in the process.
    package mutating func add(_ receiver: Receiver) -> UInt64 {
        let id = lastSubscription.add(1, ordering: .relaxed).newValue
        self.receivers[id] = receiver
        return id
    }

    /// - Returns: The removed receiver, to be released outside the lock.
    package mutating func remove(_ id: UInt64) -> Receiver? { self.receivers.removeValue(forKey: id) }

    package subscript(id: UInt64) -> Receiver? { self.receivers[id] }

    package var ids: [UInt64] { self.receivers.keys.sorted() }

    @usableFromInline
    package var inOrder: [Receiver] { self.receivers.sorted { $0.key < $1.key }.map(\.value) }
}

private let lastSubscription = Atomic<UInt64>(0)
