/// Waits until the store reports a change that may have ended a claim of a name.
///
/// The object receives each report from its creation on, so ``waitForReport(within:_:_:)`` returns at once
/// for a report between ``discardReports()`` and the call.
final class ClaimWait: Sendable {
    private struct State: Sendable {
        var failureCount = 0
        var next = FirstValue<Void>()
    }

    private let state = Locked(State())
    private let stopHearing = Locked<(@Sendable () -> Void)?>(nil)

    /// The number of reports that a claim ended without an entry (``MuxShared/Change/released(_:)``), since
    /// the creation of the object.
    var failureCount: Int { self.state.withLock { $0.failureCount } }

    init(_ name: MuxStoreKey, _ ends: Broadcast<MuxStoreKey, Bool>) {
        let stop = ends.add(to: name) { [weak self] failed in self?.ended(failed) }
        self.stopHearing.withLock { $0 = stop }
    }

    deinit { self.stopHearing.withLock { $0 }?() }

    private func ended(_ failed: Bool) {
        let next = self.state.withLock { state in
            if failed { state.failureCount += 1 }
            return state.next
        }
        next.give(())
    }

    /// Discards the reports so far, apart from ``failureCount``.
    ///
    /// To be called before a claim: the store's reply to the claim already reflects the reported changes.
    func discardReports() { self.state.withLock { $0.next = FirstValue() } }

    /// Waits for a report that a claim may have ended since the last call of ``discardReports()``.
    ///
    /// The wait also ends if the caller is cancelled, and lasts for at most `limit`; further waits then
    /// return at once, until the next call of ``discardReports()``.
    func waitForReport(within limit: Duration, _ time: TimeSource, _ spawn: TaskLauncher) async {
        let next = self.state.withLock { $0.next }
        let timer = time.schedule(name: "mux.wait-limit", after: limit, spawn) {
            next.give(())
            return nil
        }
        await withTaskCancellationHandler {
            await next.wait()
        } onCancel: {
            next.give(())
        }
        timer.cancel()
    }
}
