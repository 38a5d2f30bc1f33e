import Engines
import Foundation
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Runs episodes, several at a time: each episode has a separate fleet and some disasters.
///
/// The seed and the number of an episode determine the random choices of the episode, but not the times of
/// events: a repetition draws the same disasters, possibly at other moments.
final class Campaign: Sendable {
    private struct State {
        var left: Int
        var nextEpisode = 0
        var counts: [Kind: History.Counts] = [:]
        var calls = OriginCalls.Counts()
        var done = 0
        var violations: [String] = []
    }

    private let seed: UInt64
    private let machines: Int
    private let programs: [Engine.Program]
    private let kinds: [Kind]
    private let journals: URL
    private let repeating: String
    private let state = Mutex(State(left: 0))
    private let start = ContinuousClock.now

    /// The maximum number of disasters in an episode.
    private static let episodeLength = 25
    /// The time limit of a round; a longer round is a violation.
    private static let roundLimit = Duration.seconds(90)
    private static let mostViolations = 20

    init(
        seed: UInt64,
        machines: Int,
        programs: [Engine.Program],
        kinds: [Kind],
        journals: URL,
        repeating: String
    ) {
        self.seed = seed
        self.machines = machines
        self.programs = programs
        self.kinds = kinds
        self.journals = journals
        self.repeating = repeating
    }

    /// Runs episodes until the number of disasters reaches `count`, the time limit passes, or a signal
    /// arrives.
    ///
    /// - Returns: Whether all promises were kept.
    /// - Throws: The reason of a failed start.
    func run(count: Int, fleets: Int, limit: Duration, only episode: Int?) async throws -> Bool {
        let guardian = try Guardian()
        self.state.withLock { $0.left = count }
        self.say("seed \(self.seed), \(count) disasters, \(fleets) fleets of \(self.machines) machines")
        let work = Task {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<(episode == nil ? fleets : 1) {
                    group.addTask { try await self.runEpisodes(guardian, limit, only: episode) }
                }
                try await group.waitForAll()
            }
        }
        let signals = [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { work.cancel() }
            source.resume()
            return source
        }
        defer { for source in signals { source.cancel() } }
        let result = await work.result
        self.printTable()
        if case .failure(let error) = result { throw error is CancellationError ? Trouble("interrupted") : error }
        return self.state.withLock { $0.violations.isEmpty }
    }

    private func runEpisodes(_ guardian: Guardian, _ limit: Duration, only: Int?) async throws {
        while !Task.isCancelled, ContinuousClock.now - self.start < limit {
            let (episode, count) = self.state.withLock { state in
                let count = min(state.left, Self.episodeLength)
                state.left -= count
                state.nextEpisode += 1
                return (only ?? state.nextEpisode - 1, count)
            }
            guard count > 0 else { return }
            try await self.runEpisode(episode, count, guardian, limit)
            if only != nil { return }
        }
    }

    private func runEpisode(_ episode: Int, _ count: Int, _ guardian: Guardian, _ limit: Duration) async throws {
        var random = SeededRandom(self.seed &* 1_000_003 &+ UInt64(episode))
        _ = random.next()
        let layouts = Layout.allCases.filter { layout in self.kinds.contains { $0.layouts.contains(layout) } }
        guard let layout = layouts.randomElement(using: &random, weight: \.weight) else { return }
        let program = self.programs[episode % self.programs.count]
        let possible = self.kinds.filter { $0.layouts.contains(layout) }
        let fleet = try await Fleet(layout, program, machines: self.machines, guardian, &random)
        defer { fleet.end() }
        let place = "episode \(episode) (\(layout), \(program.name))"
        let present = Shared(possible[0])
        do {
            try await fleet.recover()
            // Counts begin when the entire fleet is ready.
            _ = fleet.history.takeCounts()
            for round in 0..<count {
                guard !Task.isCancelled, ContinuousClock.now - self.start < limit else { break }
                guard let kind = possible.randomElement(using: &random, weight: \.weight) else { return }
                present.value = kind
                var own = random.split()
                let generator = own.split()
                try await self.limited(fleet) {
                    var generator = generator
                    try await Round(fleet: fleet, kind: kind).run(&generator)
                }
                self.roundEnded(fleet, kind, "\(place), round \(round)")
            }
            let facts = try await fleet.facts()
            if facts.calls > facts.alone {
                fleet.history.violation("\(facts.calls) calls, and \(facts.alone) without a shared store")
                self.roundEnded(fleet, present.value, place)
            }
            self.state.withLock { state in
                state.calls.calls += facts.calls
                state.calls.alone += facts.alone
            }
        } catch  where !Task.isCancelled {
            fleet.history.violation("it does not go on: \(error)")
            self.roundEnded(fleet, present.value, place)
        }
    }

    /// Runs a round, and throws if the round exceeds its time limit.
    private func limited(_ fleet: Fleet, _ round: @escaping @Sendable () async throws -> Void) async throws {
        let work = Task { try await round() }
        let isLate = Shared(false)
        let watch = Task {
            try await Task.sleep(for: Self.roundLimit)
            isLate.value = true
            work.cancel()
            fleet.end()
        }
        defer { watch.cancel() }
        let result = await withTaskCancellationHandler {
            await work.result
        } onCancel: {
            work.cancel()
        }
        if isLate.value { throw Trouble("a round has taken \(Self.roundLimit)") }
        try result.get()
    }

    private func roundEnded(_ fleet: Fleet, _ kind: Kind, _ place: String) {
        let counts = fleet.history.takeCounts()
        let (violations, journal) = fleet.history.takeViolations()
        let done = self.state.withLock { state in
            state.counts[kind, default: .init()] += counts
            state.violations += violations
            state.done += counts.disasters
            return state.done
        }
        if done % 50 == 0 {
            self.say("\(done) disasters after \(Int((ContinuousClock.now - self.start) / .seconds(1))) s")
        }
        guard !violations.isEmpty else { return }
        let episode = place.split(separator: " ")[1]
        let file = self.journals.appending(path: "seed-\(self.seed)-episode-\(episode)-\(done).log")
        try? FileManager.default.createDirectory(at: self.journals, withIntermediateDirectories: true)
        try? Data((journal.joined(separator: "\n") + "\n").utf8).write(to: file)
        self.say("VIOLATION in \(place), \(kind.rawValue); journal: \(file.path)")
        for text in violations.prefix(Self.mostViolations) { self.say("    \(text)") }
        self.say("    to repeat it: \(self.repeating) --episode \(episode)")
    }

    private func say(_ text: String) { try? FileHandle.standardOutput.write(contentsOf: Data((text + "\n").utf8)) }

    private func printTable() {
        let state = self.state.withLock { $0 }
        func row(_ name: String, _ counts: History.Counts) -> String {
            let numbers = [
                counts.disasters, counts.gets, counts.checked, counts.failedGets, counts.cleared, counts.owed,
                counts.barriers,
                counts.calls, counts.exactKeys, counts.disturbedChecks, counts.refused, counts.violations,
            ]
            return name.padding(toLength: 33, withPad: " ", startingAt: 0)
                + numbers.map { number in
                    let text = "\(number)"
                    return String(repeating: " ", count: max(10 - text.count, 1)) + text
                }.joined()
        }
        let titles = [
            "times", "gets", "checked", "failed", "cleared", "owed", "barriers", "calls", "once", "uncounted",
            "refused",
            "violated",
        ]
        self.say(
            "".padding(toLength: 33, withPad: " ", startingAt: 0)
                + titles.map { String(repeating: " ", count: max(10 - $0.count, 1)) + $0 }.joined()
        )
        var sum = History.Counts()
        for kind in Kind.allCases {
            guard let counts = state.counts[kind] else { continue }
            sum += counts
            self.say(row(kind.rawValue, counts))
        }
        self.say(row("all", sum))
        self.say("calls of the origin: \(state.calls.calls); without a shared store: \(state.calls.alone)")
        self.say(
            state.violations.isEmpty
                ? "\(state.done) disasters: all promises were kept."
                : "\(state.violations.count) promises were not kept; seed \(self.seed)."
        )
    }
}
