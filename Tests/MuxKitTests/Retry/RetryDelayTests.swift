import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryDelayTests {
    private func seconds(_ policy: RetryPolicy, _ count: Int) -> [Double] {
        (1...count).map { policy.delay(beforeAttempt: $0).secondsValue }
    }

    @Test func `E02 delays are zero, fixed, linear or exponential`() {
        #expect(self.seconds(.immediate(maxAttempts: 9), 3) == [0, 0, 0])
        #expect(self.seconds(.fixed(.seconds(10)), 3) == [10, 10, 10])
        #expect(self.seconds(.linear(step: .seconds(10)), 4) == [10, 20, 30, 40])
        #expect(self.seconds(.exponential(base: .seconds(10)), 6) == [10, 20, 40, 80, 160, 320])
        #expect(RetryPolicy.fixed(.seconds(10)).delay(beforeAttempt: 0) == .zero, "the first attempt waits for nothing")
    }

    @Test func `E02 a factor other than two is exact to the nanosecond`() {
        let policy = RetryPolicy(backoff: .exponential(base: .seconds(1), factor: 1.5))

        #expect(
            (1...4).map { policy.delay(beforeAttempt: $0) } == [1_000, 1_500, 2_250, 3_375].map { .milliseconds($0) }
        )
    }

    @Test func `E03 a table gives its delays in order, and the last delay repeats`() {
        let policy = RetryPolicy(backoff: .patient)

        #expect(self.seconds(policy, 10) == [1, 3, 15, 27, 42, 60, 3_600, 21_600, 21_600, 21_600])
        #expect(self.seconds(.table([], maxAttempts: 3), 2) == [0, 0], "a table of nothing is no delay")
    }

    @Test(arguments: [
        RetryPolicy.Backoff.fixed(.seconds(100)), .linear(step: .seconds(10)), .exponential(base: .seconds(10)),
        .exponential(base: .seconds(10), factor: 1e300), .exponential(base: .seconds(Int64.max), factor: .infinity),
        .linear(step: .seconds(Int64.max)), .table([.seconds(Int64.max)]),
    ])
    func `E04 attempt 10,000 waits for the cap and does not trap`(backoff: RetryPolicy.Backoff) {
        let policy = RetryPolicy(maxAttempts: .max, backoff: backoff, jitter: .none, maximumDelay: .seconds(60))

        #expect(policy.delay(beforeAttempt: 10_000) == .seconds(60))
        #expect(policy.delay(beforeAttempt: .max) == .seconds(60))
        #expect(policy.delay(beforeAttempt: 10_000, random: 0.5) == .seconds(60))
    }

    @Test(arguments: [
        RetryPolicy.Backoff.fixed(.seconds(-5)), .linear(step: .seconds(-5)), .exponential(base: .seconds(-5)),
        .exponential(base: .zero, factor: .infinity), .exponential(base: .seconds(1), factor: -3),
        .table([.seconds(-1)]),
    ])
    func `E04 a negative delay is zero`(backoff: RetryPolicy.Backoff) {
        let policy = RetryPolicy(backoff: backoff)

        #expect(policy.delay(beforeAttempt: 2) == .zero)
        #expect(policy.delay(beforeAttempt: 2, random: 0.9) == .zero)
        #expect(RetryPolicy(backoff: backoff, maximumDelay: .seconds(-1)).delay(beforeAttempt: 2) == .zero)
    }

    @Test func `E04 full jitter is at least zero and less than the delay`() {
        var generator = SplitMix64(state: 4)
        let policy = RetryPolicy(backoff: .fixed(.nanoseconds(10)), jitter: .full)
        let drawn = (0..<1_000).map { _ in
            policy.delay(beforeAttempt: 1, random: .random(in: 0...1, using: &generator))
        }

        #expect(Set(drawn) == Set((0..<10).map { .nanoseconds($0) }))
        for random in [1, 1.5, Double.infinity] {
            #expect(policy.delay(beforeAttempt: 1, random: random) == .nanoseconds(9))
        }
        for random in [0, -1, Double.nan, -Double.infinity] {
            #expect(policy.delay(beforeAttempt: 1, random: random) == .zero)
        }
        let endless = RetryPolicy(backoff: .fixed(.longest), jitter: .full, maximumDelay: .longest)
        #expect(endless.delay(beforeAttempt: 1, random: 1) < .longest)
    }

    @Test func `E04 equal jitter leaves at least half of the delay`() {
        let policy = RetryPolicy(backoff: .fixed(.seconds(8)), jitter: .equal)

        #expect(policy.delay(beforeAttempt: 1, random: 0) == .seconds(4))
        #expect(policy.delay(beforeAttempt: 1, random: 0.5) == .seconds(6))
        #expect(policy.delay(beforeAttempt: 1, random: 1) < .seconds(8))
    }

    @Test func `E04 full jitter is the default of every policy with delays`() {
        let policies: [RetryPolicy] = [
            .web, .fixed(.seconds(1)), .linear(step: .seconds(1)), .exponential(base: .seconds(1)),
            .table([.seconds(1)], maxAttempts: 3), RetryPolicy(),
        ]

        for policy in policies { #expect(policy.jitter == .full) }
    }

    /// The chi-square statistic of the draws against a uniform distribution over the ten tenths of `range`.
    ///
    /// The statistic has 9 degrees of freedom.
    private func chiSquare(_ draws: [Duration], over range: Range<Double>) -> Double {
        var counts = Array(repeating: 0.0, count: 10)
        for draw in draws {
            let tenth = Int((draw.secondsValue - range.lowerBound) / (range.upperBound - range.lowerBound) * 10)
            counts[min(max(tenth, 0), 9)] += 1
        }
        let expected = Double(draws.count) / 10
        return counts.reduce(0) { $0 + ($1 - expected) * ($1 - expected) / expected }
    }

    private func draws(_ jitter: RetryPolicy.Jitter, seed: UInt64) -> [Duration] {
        var generator = SplitMix64(state: seed)
        let policy = RetryPolicy(backoff: .fixed(.seconds(8)), jitter: jitter)
        return (0..<10_000).map { _ in
            policy.delay(beforeAttempt: 1, random: .random(in: 0..<1, using: &generator))
        }
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `E17 a chi square test accepts the jitter as uniform, and rejects another range`(seed: UInt64) {
        let limit = 27.88  // the 99.9th percentile with 9 degrees of freedom

        #expect(self.chiSquare(self.draws(.full, seed: seed), over: 0..<8) < limit)
        #expect(self.chiSquare(self.draws(.equal, seed: seed), over: 4..<8) < limit)
        #expect(self.chiSquare(self.draws(.equal, seed: seed), over: 0..<8) > limit)
        #expect(self.draws(.none, seed: seed).allSatisfy { $0 == .seconds(8) })
    }

    @Test func `E09 once has two attempts, and web has three with delays of half a second and a second`() {
        #expect(RetryPolicy.once.maxAttempts == 2)
        #expect(RetryPolicy.once.delay(beforeAttempt: 1) == .zero)
        #expect(RetryPolicy.web.maxAttempts == 3)
        #expect(self.seconds(.web, 2) == [0.5, 1])
        #expect(RetryPolicy.never.maxAttempts == 1)
    }

    @Test func `E10 a policy survives encoding and decoding`() throws {
        let policies = [
            .never, .once, .web, .linear(step: .milliseconds(1), maxAttempts: .max, jitter: .none),
            .table([.nanoseconds(1), .seconds(Int64.max)], maxAttempts: 7, jitter: .equal),
            RetryPolicy(
                maxAttempts: -1,
                backoff: .exponential(base: .longest, factor: 1.5),
                maximumDelay: .seconds(1),
                maximumDuration: .seconds(2),
                maximumRetryAfter: .seconds(3),
                wakeJitter: .seconds(4),
                repeatsUnsafeWork: true,
                retriedStatuses: [],
                refusedStatuses: [404, 418]
            ),
        ]

        for policy in policies {
            let data = try JSONEncoder().encode(policy)
            #expect(try JSONDecoder().decode(RetryPolicy.self, from: data) == policy)
        }
    }

    @Test func `E10 a missing field of an encoded policy has its default value`() throws {
        let decoded = try JSONDecoder().decode(RetryPolicy.self, from: Data(#"{"maxAttempts": 7}"#.utf8))

        #expect(decoded == RetryPolicy(maxAttempts: 7))
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode(RetryPolicy.self, from: Data(#"{"maxAttempts": "many"}"#.utf8))
        }
    }
}
