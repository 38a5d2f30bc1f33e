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
}
