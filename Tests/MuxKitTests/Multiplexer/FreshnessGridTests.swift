import MuxKit
import MuxTestSupport
import Testing

/// `Freshness.of` against an oracle that was written from the specification.
@Suite(.standard)
struct FreshnessGridTests {
    /// The specified freshness of an entry: the first matching rule of a list.
    private static func oracle(_ facts: Freshness.Facts, _ limits: Freshness.Limits) -> Freshness {
        let staleness = facts.age - facts.timeToLive
        let isFresh = staleness < .zero && !facts.isRefreshed
        let isYoungEnough = limits.maximumAge.map { facts.age < $0 } ?? true
        let mayAnswerForErrors = staleness < facts.stale.ifError ?? limits.staleIfError
        let mayAnswerAtOnce =
            staleness < limits.toleratedStaleness ?? facts.stale.whileRevalidate ?? limits.staleWhileRevalidate
        let mayTry = !facts.isInBackoff && !facts.isFailureRemembered
        let rules: [(Bool, Freshness)] = [
            (limits.isReload && mayAnswerForErrors, .fallback),
            (limits.isReload, .unusable),
            (
                isFresh && isYoungEnough,
                .fresh(renews: mayTry && facts.renewalAge.map { facts.age >= $0 } == true)
            ),
            (facts.isInBackoff && mayAnswerForErrors, .servable(renews: false)),
            (
                !facts.isRefreshed && limits.maximumAge == nil && mayAnswerAtOnce,
                .servable(renews: !facts.isFailureRemembered)
            ),
            (mayAnswerForErrors, .fallback),
        ]
        return rules.first { $0.0 }?.1 ?? .unusable
    }

    @Test func `MX-06 MX-11 MX-12 MX-13 MX-15 freshness is a function of entry, policy, options and time`() {
        var judged: [Freshness: Int] = [:]
        let times: [Duration?] = [nil, .zero, .seconds(5), .seconds(10)]
        for age in 0...45 {
            for bits in 0..<16 {
                for renewal in times {
                    for maximumAge in times {
                        for window in [Duration.zero, .seconds(5), .seconds(20)] {
                            let facts = Freshness.Facts(
                                age: .seconds(age),
                                timeToLive: .seconds(10),
                                renewalAge: renewal,
                                isRefreshed: bits & 1 != 0,
                                isInBackoff: bits & 2 != 0,
                                isFailureRemembered: bits & 8 != 0
                            )
                            let limits = Freshness.Limits(
                                staleWhileRevalidate: window,
                                staleIfError: .seconds(15),
                                maximumAge: maximumAge,
                                isReload: bits & 4 != 0
                            )
                            let verdict = Freshness.of(facts, limits)
                            #expect(verdict == Self.oracle(facts, limits), "\(facts) \(limits)")
                            judged[verdict, default: 0] += 1
                        }
                    }
                }
            }
        }
        #expect(judged.count == 6, "every verdict occurs: \(judged)")
    }

    @Test func `MX-11 MX-12 N01 limits of a fetch override the policy, limits of a request override both`() {
        let says: [Duration?] = [nil, .zero, .seconds(3), .seconds(8)]
        var judged: Set<Freshness> = []
        for age in 8...22 {
            for bits in 0..<8 {
                for ifError in says {
                    for whileRevalidate in says {
                        for tolerated in says {
                            let facts = Freshness.Facts(
                                age: .seconds(age),
                                timeToLive: .seconds(10),
                                stale: StaleLimits(whileRevalidate: whileRevalidate, ifError: ifError),
                                isRefreshed: bits & 1 != 0,
                                isInBackoff: bits & 2 != 0
                            )
                            let limits = Freshness.Limits(
                                staleWhileRevalidate: .seconds(1),
                                staleIfError: .seconds(5),
                                toleratedStaleness: tolerated,
                                isReload: bits & 4 != 0
                            )
                            let verdict = Freshness.of(facts, limits)
                            #expect(verdict == Self.oracle(facts, limits), "\(facts) \(limits)")
                            judged.insert(verdict)
                        }
                    }
                }
            }
        }
        #expect(judged.count == 5)
    }

    @Test func `MX-06 MX-11 a time to live below zero counts as zero`() {
        for timeToLive in [Duration.zero, .seconds(-10), .zero - .longest] {
            let limits = Freshness.Limits(staleWhileRevalidate: .seconds(5), staleIfError: .seconds(8))
            let verdicts = [0, 4, 5, 7, 8].map {
                Freshness.of(.init(age: .seconds($0), timeToLive: timeToLive), limits)
            }
            #expect(
                verdicts == [.servable(renews: true), .servable(renews: true), .fallback, .fallback, .unusable]
            )
        }
    }
}
