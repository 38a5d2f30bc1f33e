import MuxKit
import MuxTesting

/// An object in a key, a value, an error or a closure that calls a closure on its release.
final class LastCall: Sendable {
    private let call: @Sendable () -> Void

    init(_ call: @escaping @Sendable () -> Void) { self.call = call }

    deinit { self.call() }
}

/// A key with a ``LastCall``, which does not affect equality.
struct CallingKey: MuxKey, CustomStringConvertible {
    let number: Int
    let last: LastCall?

    var keyText: String { "\(self.number)" }
    var description: String { "\(self.number)" }
    static func == (a: CallingKey, b: CallingKey) -> Bool { a.number == b.number }
    func hash(into hasher: inout Hasher) { hasher.combine(self.number) }
}

/// A value that calls ``call`` on its release, and then counts itself in ``gone``.
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
    /// Replaces the state and returns the previous state, for a release outside the lock.
    @discardableResult
    func exchange(for state: State) -> State {
        self.withLock { former in
            defer { former = state }
            return former
        }
    }
}
