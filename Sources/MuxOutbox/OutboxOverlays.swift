import Foundation
import MuxKit

/// Shows the pending and the confirmed changes of an outbox in multiplexers.
///
/// An *overlay* applies changes of the outbox to the values of a multiplexer. A *hold* is a
/// `MuxRepository.Change` that leaves the value unchanged. A hold delays the refresh of a value until no
/// change of the outbox is being sent.
///
/// ``show(_:isUnsent:_:)`` and ``end(_:isCommitted:)`` must not run concurrently.
final class OutboxOverlays<Change: Sendable>: Sendable {
    typealias ID = OutboxStateMachine.ID

    /// A value that a change concerns: of a multiplexer, or of one key of a map.
    struct Target: Sendable {
        /// Identifies the multiplexer and the key.
        let id: any Hashable & Sendable
        /// Shows `change` in the multiplexer; `isUnsent` if no request can have sent the change.
        ///
        /// Returns the handle that ends the display; `nil` if the app's closure threw an error.
        let show: @Sendable (_ change: Change, _ isUnsent: Bool) -> MuxRepository.Change?
        /// Postpones the refresh of the value until the end of the returned handle.
        let hold: @Sendable () -> MuxRepository.Change?
    }

    /// The display of a change of the outbox.
    private struct Shown: Sendable {
        /// The number of overlays that have received the change: the first overlays of ``State/overlays``.
        var overlayCount = 0
        /// The handles to end the display.
        var changes: [MuxRepository.Change] = []
    }

    private struct State {
        /// Each returns the target of a change; `nil` if the overlay does not concern the change.
        var overlays: [@Sendable (Change) -> Target?] = []
        var shown: [ID: Shown] = [:]
        /// The holds, by ``Target/id``.
        var holds: [AnyHashable: MuxRepository.Change] = [:]
    }

    private let state = Locked(State())

    var isEmpty: Bool { self.state.withLock { $0.overlays.isEmpty } }

    /// Adds an overlay, which the next call of ``show(_:isUnsent:_:)`` includes.
    func add(_ overlay: @escaping @Sendable (Change) -> Target?) { self.state.withLock { $0.overlays.append(overlay) } }

    /// Shows a change in the overlays that lack the change, and passes `isUnsent` to the other overlays.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - isUnsent: Whether no request can have sent the change: then a response to a fetch cannot include
    ///     the change, and is shown with the change. Otherwise a response may or may not include the change,
    ///     and is not kept.
    ///   - change: Decodes the change; `nil` after an error.
    func show(_ id: ID, isUnsent: Bool, _ change: () -> Change?) {
        var (shown, overlays) = self.state.withLock { ($0.shown[id] ?? Shown(), $0.overlays) }
        for change in shown.changes { change.mark(isUnsent: isUnsent) }
        let missing = overlays.dropFirst(shown.overlayCount)
        guard !missing.isEmpty, let change = change() else { return }
        shown.changes += missing.compactMap { $0(change)?.show(change, isUnsent) }
        shown.overlayCount = overlays.count
        self.state.withLock { [shown] in $0.shown[id] = shown }
    }

    /// Postpones the refresh of the values that `change` concerns until ``releaseHolds()``.
    func hold(_ change: Change) {
        for target in self.state.withLock({ $0.overlays }).compactMap({ $0(change) }) {
            guard self.state.withLock({ $0.holds[AnyHashable(target.id)] == nil }), let hold = target.hold() else {
                continue
            }
            let kept = self.state.withLock { state in
                // Another sender may have added a hold in the meantime.
                let kept = state.holds[AnyHashable(target.id)] ?? hold
                state.holds[AnyHashable(target.id)] = kept
                return kept
            }
            // The end of a superfluous hold calls observers of the app, which must not happen under the lock.
            if kept !== hold { hold.commit() }
        }
    }

    /// Ends the display of a change.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - isCommitted: Whether the change stays visible until the next fetch; otherwise the change is undone
    ///     at once.
    func end(_ id: ID, isCommitted: Bool) {
        let shown = self.state.withLock { $0.shown.removeValue(forKey: id) }
        for change in shown?.changes ?? [] { if isCommitted { change.commit() } else { change.undo() } }
    }

    /// Ends all holds, so that the values of the sent changes are refreshed; called when no change is being
    /// sent.
    func releaseHolds() {
        let holds = self.state.withLock { state in
            // The returned holds retain the keys, so no key of the app is deallocated under the lock.
            defer { state.holds = [:] }
            return Array(state.holds.values)
        }
        for hold in holds { hold.commit() }
    }
}
