import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct DurationTests {
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
