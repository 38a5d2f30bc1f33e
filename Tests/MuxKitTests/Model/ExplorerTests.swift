import MuxKit
import MuxTestSupport
import Testing

/// Every sequence of events up to a length, against models that were written from the specification.
///
/// `MUX_DEPTH=2` extends the sequences by two events.
@Suite(.standard(minutes: 60))
struct ExplorerTests {
    private func explore<Decider: FlightDecider>(
        _ decider: Decider,
        _ scope: FlightBoard<Decider>.Scope,
        depth: Int
    ) async -> Explorer<FlightBoard<Decider>, FlightBoard<Decider>.Event>.Outcome {
        await BlockingWork.run {
            Explorer<FlightBoard<Decider>, FlightBoard<Decider>.Event>(
                events: { $0.events(scope) },
                apply: { $0.apply($1, scope) }
            ).explore(from: FlightBoard(decider, scope), depth: depth)
        }
    }

    @Test(arguments: [FlightStateMachine.Abandonment.finish, .cancel, .linger])
    func `Q-02 every order of callers and fences of two keys gets the specified decisions`(
        abandonment: FlightStateMachine.Abandonment
    ) async {
        var scope = FlightBoard<FlightStateMachine>.Scope()
        scope.abandonment = abandonment
        let outcome = await self.explore(FlightStateMachine(), scope, depth: ProofEnvironment.depth(8))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "flights, abandonment \(abandonment)", outcome)
    }

    @Test func `Q-02 every order of disk reads and deadlines gets the specified decisions`() async {
        var scope = FlightBoard<FlightStateMachine>.Scope()
        scope.keys = 1
        scope.hasDiskAndDeadlines = true
        let outcome = await self.explore(FlightStateMachine(), scope, depth: ProofEnvironment.depth(7))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "flights with disk and deadlines", outcome)
    }

    @Test func `SC-07 every order of callers, fences and outdated values gets the specified decisions`() async {
        var scope = FlightBoard<FlightStateMachine>.Scope()
        scope.keys = 1
        scope.hasTags = true
        let outcome = await self.explore(FlightStateMachine(), scope, depth: ProofEnvironment.depth(9))

        #expect(outcome.story == nil)
        ProofEnvironment.report("SC-07", "flights with tags", outcome)
    }

    @Test(arguments: PlantedFlight.Bug.allCases)
    func `Q-02 a bug planted among flights is found by the shortest history`(bug: PlantedFlight.Bug) async {
        var scope = FlightBoard<PlantedFlight>.Scope()
        scope.keys = 1
        scope.hasDiskAndDeadlines = true
        scope.hasTags = [.outdatedOutcomeGivenToLateCallers, .outdatedOutcomeKept].contains(bug)
        if bug == .lingerOutlivesTheReturn { scope.abandonment = .linger }
        let outcome = await self.explore(PlantedFlight(bug), scope, depth: bug == .none ? 5 : 8)

        #expect((outcome.story == nil) == (bug == .none))
        if let story = outcome.story { print("Q-02: \(bug.rawValue): \(story)") }
    }

    private func explore(_ bug: DependencyDecider.Bug, depth: Int)
        async -> Explorer<DependencyBoard, DependencyBoard.Event>.Outcome
    {
        await BlockingWork.run {
            Explorer<DependencyBoard, DependencyBoard.Event>(events: { $0.events }, apply: { $0.apply($1) })
                .explore(from: DependencyBoard(bug), depth: depth)
        }
    }

    @Test func `Q-02 every order of calls, refusals, updates and parents gets the specified decisions`() async {
        let outcome = await self.explore(DependencyDecider.Bug.none, depth: ProofEnvironment.depth(8))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "a runner's layer", outcome)
    }

    @Test(arguments: DependencyDecider.Bug.allCases.dropFirst())
    func `Q-02 a bug planted in a runner is found by the shortest history`(bug: DependencyDecider.Bug) async throws {
        let outcome = await self.explore(bug, depth: 8)
        let story = try #require(outcome.story)

        print("Q-02: \(bug.rawValue): \(story)")
    }

    private func explore(_ bug: SlotBoard.Bug, depth: Int) async -> Explorer<SlotBoard, SlotBoard.Event>.Outcome {
        await BlockingWork.run {
            Explorer<SlotBoard, SlotBoard.Event>(events: { $0.events }, apply: { $0.apply($1) })
                .explore(from: SlotBoard(bug), depth: depth)
        }
    }

    @Test func `Q-02 every history of an entry gives the specified freshness`() async {
        let outcome = await self.explore(SlotBoard.Bug.none, depth: ProofEnvironment.depth(8))

        #expect(outcome.story == nil)
        ProofEnvironment.report("Q-02", "an entry in memory and on disk", outcome)
    }

    @Test(arguments: SlotBoard.Bug.allCases.dropFirst())
    func `Q-02 a bug planted in a slot is found by the shortest history`(bug: SlotBoard.Bug) async throws {
        let outcome = await self.explore(bug, depth: 8)
        let story = try #require(outcome.story)

        print("Q-02: \(bug.rawValue): \(story)")
    }
}
