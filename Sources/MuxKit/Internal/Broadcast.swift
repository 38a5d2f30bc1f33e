import Synchronization

/// Sends elements to the receivers of one topic or of all topics, outside the lock.
///
/// Receivers of a topic are called in order of registration; the order of the topics is not defined.
@usableFromInline
package final class Broadcast<Topic: Hashable & Sendable, Element: Sendable>: Sendable {
    @usableFromInline package typealias Receiver = @Sendable (Element) -> Void

    @usableFromInline let topics = Locked<[Topic: Subscribers<Receiver>]>([:])

    package init() {}

    /// Registers `receiver` for the elements of `topic`.
    ///
    /// - Parameters:
    ///   - topic: The topic.
    ///   - finish: Called once, when the receiver is released: after the removal of the receiver, or when the
    ///     broadcast is deallocated.
    ///   - receiver: Receives the elements.
    /// - Returns: A closure that removes the receiver. A send in progress may still call the receiver after
    ///   the removal.
    package func add(
        to topic: Topic,
        finish: (@Sendable () -> Void)? = nil,
        _ receiver: @escaping Receiver
    ) -> @Sendable () -> Void {
        var receiver = receiver
        if let finish {
            let (end, receive) = (SubscriptionEnd(finish), receiver)
            receiver = { element in withExtendedLifetime(end) { receive(element) } }
        }
        let id = self.topics.withLock { [receiver] in $0[topic, default: Subscribers()].add(receiver) }
        return { [weak self] in
            let removed = self?.topics.withLock { topics -> (Receiver?, (key: Topic, value: Subscribers<Receiver>)?) in
                guard let place = topics.index(forKey: topic) else { return (nil, nil) }
                let receiver = topics.values[place].remove(id)
                return (receiver, topics.values[place].isEmpty ? topics.remove(at: place) : nil)
            }
            withExtendedLifetime(removed) {}  // released outside the lock
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

extension Broadcast {
    /// A stream of signals for the elements of `topic`, with a buffer of one signal.
    ///
    /// The stream ends when the consumer ends, or when the broadcast is deallocated.
    ///
    /// - Parameters:
    ///   - topic: The topic.
    ///   - isMeant: Selects the elements.
    /// - Returns: The stream.
    package func stream(
        of topic: Topic,
        where isMeant: @escaping @Sendable (Element) -> Bool = { _ in true }
    ) -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let remove = self.add(to: topic, finish: { continuation.finish() }, { if isMeant($0) { continuation.yield() } })
        continuation.onTermination = { _ in remove() }
        return stream
    }
}

/// Calls `finish` when the receiver is released.
private final class SubscriptionEnd: Sendable {
    private let finish: @Sendable () -> Void

    init(_ finish: @escaping @Sendable () -> Void) { self.finish = finish }

    deinit { self.finish() }
}

/// Receivers in order of registration; a value, to be stored in the locked state of the sender.
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
