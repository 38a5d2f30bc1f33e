import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// The server behind the fleet: each key has a version.
///
/// A call receives the version at its arrival, some milliseconds later.
final class Origin: Sendable {
    /// A call whose response is held back.
    struct HeldCall: Sendable {
        let place: Place
        fileprivate let answer: @Sendable (Place) -> Void

        /// Sends the response: the version of the key at the arrival of the call.
        func release() { self.answer(self.place) }
    }

    private struct State {
        var versions: [Int: Int] = [:]
        var calls: [Int: Int] = [:]
        var lastCall = 0
        var holds: [Hold: CheckedContinuation<HeldCall, any Error>] = [:]
        var random: SeededRandom
    }

    private struct Hold: Hashable {
        let machine: Int
        let key: Int
    }

    private let state: Mutex<State>

    init(_ random: SeededRandom) { self.state = Mutex(State(random: random)) }

    /// Responds to a call.
    ///
    /// - Parameters:
    ///   - machine: The number of the calling machine.
    ///   - key: The requested key.
    ///   - answer: Sends the response.
    /// - Returns: The value that the call will receive.
    func call(from machine: Int, for key: Int, answer: @escaping @Sendable (Place) -> Void) -> Place {
        let (place, held, delay) = self.state.withLock { state in
            state.lastCall += 1
            state.calls[key, default: 0] += 1
            let place = Place(version: state.versions[key, default: 0], call: state.lastCall)
            let held = state.holds.removeValue(forKey: Hold(machine: machine, key: key))
            return (place, held, Int64.random(in: 3...15, using: &state.random))
        }
        if let held {
            held.resume(returning: HeldCall(place: place, answer: answer))
        } else {
            _ = MultiThreadedEventLoopGroup.singleton.next()
                .scheduleTask(in: .milliseconds(delay)) { answer(place) }
        }
        return place
    }

    /// Waits for a machine's next call for a key, and holds the response back.
    ///
    /// - Throws: ``Trouble`` if the round ends first.
    func hold(_ machine: Int, _ key: Int, then ask: @Sendable () -> Void) async throws -> HeldCall {
        try await withCheckedThrowingContinuation { continuation in
            self.state.withLock { $0.holds[Hold(machine: machine, key: key)] = continuation }
            ask()
        }
    }

    /// Ends all waits for calls.
    func abandonHolds() {
        let holds = self.state.withLock { state in
            defer { state.holds = [:] }
            return state.holds.values
        }
        for hold in holds { hold.resume(throwing: Trouble("a machine does not call")) }
    }

    /// Changes keys.
    ///
    /// - Returns: The new versions of the keys.
    func change(_ keys: some Sequence<Int>) -> [Int: Int] {
        self.state.withLock { state in
            var changed: [Int: Int] = [:]
            for key in keys {
                state.versions[key, default: 0] += 1
                changed[key] = state.versions[key]
            }
            return changed
        }
    }

    /// The number of calls for each key.
    var calls: [Int: Int] { self.state.withLock { $0.calls } }

    func version(_ key: Int) -> Int { self.state.withLock { $0.versions[key, default: 0] } }
}
