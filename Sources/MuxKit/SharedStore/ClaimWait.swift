/// Waits for the ends of other machines' claims of one name; begins to listen at once.
final class ClaimWait: Sendable {
    private struct State: Sendable {
        var failureCount = 0
        var next = FirstAnswer<Void>()
    }

    private let state = Locked(State())
    private let stopHearing = Locked<(@Sendable () -> Void)?>(nil)

    /// How many claims have ended without an entry.
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

    /// The claim is about to be asked for: what happened before, its answer will say.
    func begins() { self.state.withLock { $0.next = FirstAnswer() } }

    /// Waits until something has happened since the last call of ``begins()``.
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
