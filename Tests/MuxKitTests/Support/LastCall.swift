import MuxKit
import MuxTesting

/// An object in a key, a value, an error or a closure, whose last reference makes a call, and counts it.
final class LastCall: Sendable {
    private let call: @Sendable () -> Void

    init(_ call: @escaping @Sendable () -> Void) { self.call = call }

    deinit { self.call() }
}

/// A key with such an object, which has no part in equality.
struct CallingKey: MuxKey, CustomStringConvertible {
    let number: Int
    let last: LastCall?

    var keyText: String { "\(self.number)" }
    var description: String { "\(self.number)" }
    static func == (a: CallingKey, b: CallingKey) -> Bool { a.number == b.number }
    func hash(into hasher: inout Hasher) { hasher.combine(self.number) }
}

/// A value whose last reference makes ``call``; one at a time, and not within itself.
final class CallingValue: Codable, Sendable {
    static let call = Locked<@Sendable () -> Void>({})
    static let gone = Tally()

    let number: Int

    init(number: Int) { self.number = number }

    deinit {
        Self.call.withLock { $0 }()
        Self.gone.add()
    }
}

extension Locked where State: Sendable {
    /// Replaces the state, and returns the former one, to be released outside the lock.
    @discardableResult
    func exchange(for state: State) -> State {
        self.withLock { former in
            defer { former = state }
            return former
        }
    }
}
