import Foundation
import MuxKit

/// Shows the changes of an outbox in multiplexers until the server has the changes.
///
/// A *hold* is a change without an effect. A hold delays the refresh of a value until no change is being
/// sent.
final class OutboxOverlays<Change: Sendable>: Sendable {
    typealias ID = OutboxStateMachine.ID

    /// A value that a change concerns: of a multiplexer, or of one key of a map.
    struct Target: Sendable {
        /// Identifies the multiplexer and the key.
        let id: AnyHashableSendable
        /// Shows `change` in the multiplexer; `isUnsent` if no request can have sent the change.
        let show: @Sendable (_ change: Change, _ isUnsent: Bool) -> MuxRepository.Change?
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

    /// Shows a change in all overlays, or marks the shown change.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - isUnsent: Whether no request can have sent the change: then a response to a fetch cannot include
    ///     the change, and is shown with the change. Otherwise a response may or may not include the change,
    ///     and is not kept.
    ///   - change: Reads the change.
    func show(_ id: ID, isUnsent: Bool, _ change: () -> Change?) {
        if let shown = self.state.withLock({ $0.shown[id] }) {
            for change in shown { change.mark(isUnsent: isUnsent) }
            return
        }
        guard let change = change() else { return }
        let shown = self.targets(of: change).compactMap { $0.show(change, isUnsent) }
        self.state.withLock { $0.shown[id] = shown }
    }

    /// Shows a change in an overlay that was added after the change.
    func show(_ id: ID, isUnsent: Bool, _ change: Change, in overlay: @Sendable (Change) -> Target?) {
        guard let shown = overlay(change)?.show(change, isUnsent) else { return }
        self.state.withLock { $0.shown[id, default: []].append(shown) }
    }

    /// Postpones the refresh of the keys of `change` until ``rest()``.
    func hold(_ change: Change) {
        for target in self.targets(of: change) {
            guard self.state.withLock({ $0.holds[target.id] == nil }), let hold = target.hold() else { continue }
            self.state.withLock { $0.holds[target.id] = hold }
        }
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

    /// Forgets all overlays, after their values were removed.
    func removeAll() {
        let shown = self.state.withLock { state in
            defer { state.shown = [:] }
            return state.shown
        }
        for change in shown.values.joined() { change.undo() }
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
