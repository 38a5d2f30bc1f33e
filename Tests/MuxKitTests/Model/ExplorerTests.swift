import MuxKit
import Testing

/// Every sequence of events up to a length, against models that were written from the promises; `MUX_DEPTH=2` makes them longer by two.
@Suite(.timeLimit(.minutes(60)))
struct ExplorerTests {
    private func explore<Decider: FlightDecider>(
        _ decider: Decider,
        _ scope: FlightBoard<Decider>.Scope,
        depth: Int
    ) -> Explorer<FlightBoard<Decider>, FlightBoard<Decider>.Event>.Outcome {
        Explorer<FlightBoard<Decider>, FlightBoard<Decider>.Event>(
            events: { $0.events(scope) },
            apply: { $0.apply($1, scope) }
        ).explore(from: FlightBoard(decider, scope), depth: depth)
    }

    @Test(arguments: [FlightStateMachine<Int>.Abandonment.finish, .cancel, .linger])
    func `Q-02 every order of callers and fences of two keys is answered as promised`(
        abandonment: FlightStateMachine<Int>.Abandonment
    ) {
        var scope = FlightBoard<FlightStateMachine<Int>>.Scope()
        scope.abandonment = abandonment
        let outcome = self.explore(FlightStateMachine<Int>(), scope, depth: ProofEnvironment.depth(8))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "flights, abandonment \(abandonment)", outcome)
    }

    @Test func `Q-02 every order of looks at the disk and deadlines is answered as promised`() {
        var scope = FlightBoard<FlightStateMachine<Int>>.Scope()
        scope.keys = 1
        scope.hasDiskAndDeadlines = true
        let outcome = self.explore(FlightStateMachine<Int>(), scope, depth: ProofEnvironment.depth(7))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "flights with disk and deadlines", outcome)
    }

    @Test(arguments: PlantedFlight.Bug.allCases)
    func `Q-02 a bug planted among flights is found by the shortest history`(bug: PlantedFlight.Bug) {
        var scope = FlightBoard<PlantedFlight>.Scope()
        scope.keys = 1
        scope.hasDiskAndDeadlines = true
        if bug == .lingerOutlivesTheReturn { scope.abandonment = .linger }
        let outcome = self.explore(PlantedFlight(bug), scope, depth: bug == .none ? 5 : 8)

        #expect((outcome.story == nil) == (bug == .none))
        if let story = outcome.story { print("Q-02: \(bug.rawValue): \(story)") }
    }
}
