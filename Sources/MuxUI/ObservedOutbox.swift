public import MuxOutbox
public import Observation

/// The unconfirmed changes of an outbox, for views.
///
/// ```swift
/// struct UnsentView: View {
///     @State private var unsent = Backend.outbox.observed()
///
///     var body: some View {
///         List(unsent.changes) { change in Text(verbatim: "\(change.state)") }
///             .task { await unsent.follow() }
///     }
/// }
/// ```
///
/// The list is empty before the first ``follow()``, and is updated while ``follow()`` runs. Any number of
/// objects can follow one outbox.
///
/// **Lifetime.** The object retains the outbox. MuxUI retains the object only during ``follow()``.
@MainActor
@Observable
public final class ObservedOutbox<Change: Codable & Sendable> {
    /// The changes, in the order of their addition; see `MuxOutbox.pending`.
    public private(set) var changes: [MuxOutbox<Change>.PendingChange] = []

    @ObservationIgnored private let outbox: MuxOutbox<Change>

    /// Makes an object for the changes of `outbox`; starts nothing.
    public init(_ outbox: MuxOutbox<Change>) { self.outbox = outbox }

    /// The failed changes; see `MuxOutbox.PendingChange.hasFailed`.
    public var failed: [MuxOutbox<Change>.PendingChange] { self.changes.filter(\.hasFailed) }

    /// Follows the outbox until the cancellation of the task, such as in `task` of a view.
    ///
    /// Views update only if the list differs from the list on the screen.
    public func follow() async {
        for await changes in self.outbox.states where !Self.isEqual(changes, self.changes) { self.changes = changes }
    }

    private static func isEqual(
        _ new: [MuxOutbox<Change>.PendingChange],
        _ old: [MuxOutbox<Change>.PendingChange]
    ) -> Bool {
        new.count == old.count
            && zip(new, old).allSatisfy { $0.id == $1.id && $0.state == $1.state && $0.attempts == $1.attempts }
    }
}

extension MuxOutbox {
    /// Makes an observable object for the unconfirmed changes.
    @MainActor
    public func observed() -> ObservedOutbox<Change> { ObservedOutbox(self) }
}
