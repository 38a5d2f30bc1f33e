import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct DurationTests {
    @Test(arguments: [
        (1.5, Duration.milliseconds(1_500)), (-1.5, .milliseconds(-1_500)), (.infinity, .longest),
        (-.infinity, .zero - .longest), (1e300, .longest), (-1e300, .zero - .longest), (.nan, .zero),
    ])
    func `PT-01 a number of seconds is a duration with its sign, clamped`(seconds: Double, duration: Duration) {
        #expect(Duration.saturating(seconds: seconds) == duration)
    }

    @Test func `PT-01 failures of some items are no failures of the other items`() async {
        let items = Array(0..<512)
        let failures = await isolatingFailures(
            of: items,
            concernsAll: { _ in false },
            { part in if part.contains(where: { $0.isMultiple(of: 37) }) { throw FetchFailed() } }
        )
        #expect(Set(failures.map(\.item)) == Set(items.filter { $0.isMultiple(of: 37) }))
    }

    @Test func `PF-11 whole nanoseconds of a duration are exact, rounded towards zero and limited`() {
        let whole: [Int64] = [0, 1, 999_999_999, 1_000_000_000, 1 << 40, Int64.max / 2 - 1, Int64.max / 2]
        for count in whole {
            #expect(Duration.nanoseconds(count).saturatedNanoseconds == count)
            #expect(Duration.nanoseconds(-count).saturatedNanoseconds == -count)
        }
        let part = Duration(secondsComponent: 0, attosecondsComponent: 1_999_999_999)
        #expect(part.saturatedNanoseconds == 1)
        #expect((Duration.zero - part).saturatedNanoseconds == -1)
        for duration in [Duration.longest, .nanoseconds(Int64.max), .seconds(Int64.max)] {
            #expect(duration.saturatedNanoseconds == Int64.max / 2)
            #expect((Duration.zero - duration).saturatedNanoseconds == -(Int64.max / 2))
        }
    }
}
