import Foundation
import MuxKit

/// Shows the changes of an outbox in multiplexers until the server has the changes.
///
/// An overlaid key is refreshed once, when the outbox comes to rest: a *hold*, a change of the key without an
/// effect, postpones the refresh.
final class OutboxOverlays<Change: Sendable>: Sendable {
    typealias ID = OutboxStateMachine.ID

    /// The key of a multiplexer with changes.
    struct Target: Sendable {
        /// Identifies the multiplexer and the key.
        let id: AnyHashableSendable
        /// Shows `change` in the multiplexer.
        let show: @Sendable (Change) -> MuxRepository.Change?
        /// Postpones the refresh of the key.
        let hold: @Sendable () -> MuxRepository.Change?
    }

    private struct State: Sendable {
        /// Each returns the target of a change; `nil` if the overlay does not concern the change.
        var overlays: [@Sendable (Change) -> Target?] = []
        /// The shown changes.
        var shown: [ID: [MuxRepository.Change]] = [:]
        var holds: [AnyHashableSendable: MuxRepository.Change] = [:]
    }

    private let state = Locked(State())

    var isEmpty: Bool { self.state.withLock { $0.overlays.isEmpty } }

    /// Adds an overlay for changes that are shown later.
    func add(_ overlay: @escaping @Sendable (Change) -> Target?) { self.state.withLock { $0.overlays.append(overlay) } }

    private func targets(of change: Change) -> [Target] {
        self.state.withLock { $0.overlays }.compactMap { $0(change) }
    }

    /// Shows a change in all overlays, unless the change is shown.
    func show(_ id: ID, _ change: Change) {
        guard self.state.withLock({ $0.shown[id] == nil }) else { return }
        let shown = self.targets(of: change).compactMap { $0.show(change) }
        self.state.withLock { $0.shown[id] = shown }
    }

    /// Shows a change in an overlay that was added after the change.
    func show(_ id: ID, _ change: Change, in overlay: @Sendable (Change) -> Target?) {
        guard let shown = overlay(change)?.show(change) else { return }
        self.state.withLock { $0.shown[id, default: []].append(shown) }
    }

    /// Postpones the refresh of the keys of `change` until ``rest()``.
    func hold(_ change: Change) {
        for target in self.targets(of: change) {
            guard self.state.withLock({ $0.holds[target.id] == nil }), let hold = target.hold() else { continue }
            self.state.withLock { $0.holds[target.id] = hold }
        }
    }

    /// An attempt is about to send the change: a response of the server may include the change from now on.
    func willSend(_ id: ID) {
        for change in self.state.withLock({ $0.shown[id] ?? [] }) { change.willSend() }
    }

    /// The change certainly did not reach the server.
    func wasUnsent(_ id: ID) {
        for change in self.state.withLock({ $0.shown[id] ?? [] }) { change.wasUnsent() }
    }

    /// Ends the overlays of a change.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - isCommitted: Whether the change stays visible until the next fetch.
    func end(_ id: ID, isCommitted: Bool) {
        for change in self.state.withLock({ $0.shown.removeValue(forKey: id) ?? [] }) {
            if isCommitted { change.commit() } else { change.undo() }
        }
    }

    /// No change is being sent: the keys of the sent changes are refreshed.
    func rest() {
        let holds = self.state.withLock { state in
            defer { state.holds = [:] }
            return state.holds
        }
        for hold in holds.values { hold.commit() }
    }
}

/// A hashable value of any type.
struct AnyHashableSendable: Hashable, Sendable {
    private let value: any Hashable & Sendable

    init(_ value: some Hashable & Sendable) { self.value = value }

    static func == (a: Self, b: Self) -> Bool { AnyHashable(a.value) == AnyHashable(b.value) }

    func hash(into hasher: inout Hasher) { AnyHashable(self.value).hash(into: &hasher) }
}
