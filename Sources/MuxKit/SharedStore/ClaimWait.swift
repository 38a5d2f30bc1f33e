/// Waits for the ends of other machines' claims of a name; listens from its creation on.
final class ClaimWait: Sendable {
    private struct State: Sendable {
        var failureCount = 0
        var next = FirstAnswer<Void>()
    }

    private let state = Locked(State())
    private let stopHearing = Locked<(@Sendable () -> Void)?>(nil)

    /// The number of claims without an entry at their end.
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

    /// Discards earlier ends of claims: the reply to the following claim contains their effect.
    func begins() { self.state.withLock { $0.next = FirstAnswer() } }

    /// Waits for the end of a claim since the last call of ``begins()``, and for `limit` at most.
    func next(within limit: Duration, _ time: TimeSource, _ spawn: TaskLauncher) async {
        let next = self.state.withLock { $0.next }
        let timer = spawn(name: "mux.wait-limit") {
            try? await time.sleep(for: limit)
            next.give(())
        }
        await withTaskCancellationHandler {
            await next.wait()
        } onCancel: {
            next.give(())
        }
        timer.cancel()
    }
}
