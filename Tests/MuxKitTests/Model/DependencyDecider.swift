import MuxKit

/// The state machine of a runner, with or without a planted bug.
struct DependencyDecider: Sendable {
    typealias Machine = DependencyStateMachine<Int>

    /// Bugs that distort the machine's inputs and outputs, without a copy of the machine's code.
    enum Bug: String, CaseIterable, Sendable {
        case none = "no bug"
        case epochRestarts = "epoch restarted at 0"
        case lateRefusalRefreshes = "late refusal refreshes again"
        case childKept = "child kept across a parent change"
        case signOutUndone = "sign-out undone by a late success"
        case refusedHandedOutAgain = "a refused value is handed out again"
        case callOutlivesItsSession = "a call outlives its session"
        case updatesUncounted = "updates are not counted"
        case refusalForgotten = "a refused update is tried again"
        case endKeepsTheValue = "a reset keeps the value"
        case successUnnoticed = "a success clears no count"
    }

    /// The plain result of a call.
    enum Answer: Equatable, Sendable {
        case use(Int)
        case fail(String)
        case update
    }

    let bug: Bug
    private var base = Machine(nil)

    init(_ bug: Bug) { self.bug = bug }

    var epoch: UInt64 { self.base.epoch }

    var brokenInvariants: [String] { self.base.brokenInvariants() }

    func call() -> Machine.Call { self.base.makeCall(at: .init(nanoseconds: 0)) }

    func held(_ parent: UInt64) -> Machine.VersionedDependency? {
        self.base.current(parentEpoch: self.bug == .childKept ? 0 : parent)
    }

    mutating func answer(to call: inout Machine.Call, parent: UInt64) -> (Answer, epoch: UInt64?) {
        let now = Moment(nanoseconds: 0)
        let policy = RunnerPolicy(maximumUpdatesPerCall: 1, maximumUpdatesPerWindow: nil)
        let parent = self.bug == .childKept ? 0 : parent
        let wasRefused = call.badEpoch != nil
        var asked = call
        if self.bug == .refusedHandedOutAgain { asked.badEpoch = nil }
        if self.bug == .updatesUncounted || self.bug == .callOutlivesItsSession && call.session != self.call().session {
            asked = self.call()
            asked.badEpoch = call.badEpoch
        }
        let answer = self.base.decideAction(of: &asked, parentEpoch: parent, policy: policy, at: now)
        if self.bug != .updatesUncounted, self.bug != .callOutlivesItsSession { call = asked }
        switch answer {
        case .use where self.bug == .lateRefusalRefreshes && wasRefused: return (.update, nil)
        case .use(let held): return (.use(held.value), held.epoch)
        case .update: return (.update, nil)
        case .fail(let error):
            switch error as? RunnerError {
            case .reset: return (.fail("reset"), nil)
            case .signedOut: return (.fail("signed out"), nil)
            case .tooManyUpdates: return (.fail("too many updates"), nil)
            case .updateFailed: return self.bug == .refusalForgotten ? (.update, nil) : (.fail("refused"), nil)
            default: return (.fail("something else"), nil)
            }
        }
    }

    mutating func changed(to value: Int, parent: UInt64) -> UInt64 {
        self.base.setValue(value, parentEpoch: parent).epoch
    }

    mutating func accepted(_ epoch: UInt64) {
        guard self.bug != .successUnnoticed else { return }
        self.base.recordAcceptance(epoch)
    }

    mutating func refused() { self.base.recordRefusedUpdate(.updateFailed(underlying: nil)) }

    mutating func ended(_ end: Machine.End) {
        switch self.bug {
        case .epochRestarts: self.base = Machine(nil)
        case .endKeepsTheValue:
            let held = self.base.current(parentEpoch: 0)
            self.base.endSession(end)
            if let held { _ = self.base.setValue(held.value, parentEpoch: held.parentEpoch) }
        default: self.base.endSession(end)
        }
    }

    /// Applies the late value of an update that a set or an end had dismissed.
    mutating func cameLate(_ value: Int, parent: UInt64) {
        if self.bug == .signOutUndone {
            _ = self.base.setValue(value, parentEpoch: parent)
        } else {
            self.base.recordParentSuccessor(from: parent, to: parent)
        }
    }
}
