import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxKit

@Suite(.standard)
struct LoggingObserverTests {
    private struct Line: Equatable {
        var text: String
        var isTrouble = false
    }

    /// Counts an event after the log has printed the event.
    private struct Printed: MuxObserver {
        let log = LoggingObserver(subsystem: "Shop")
        let tally = EventTally()

        func observe(_ event: MuxEvent) {
            self.log.observe(event)
            self.tally.observe(event)
        }
    }

    private static func lines(
        of events: [MuxEvent],
        showsKeys: Bool,
        isIncluded: @escaping @Sendable (MuxEvent) -> Bool = { _ in true }
    ) -> [Line] {
        let lines = Locked<[Line]>([])
        let observer = LoggingObserver(
            observesHits: true,
            showsKeys: showsKeys,
            isIncluded: isIncluded,
            write: { text, isTrouble in lines.withLock { $0.append(Line(text: text, isTrouble: isTrouble)) } }
        )
        for event in events { observer.observe(event) }
        return lines.withLock { $0 }
    }

    @Test func `MX-28 a line of the log contains the name, the kind and the duration of an event`() {
        let events = [
            MuxEvent(.missed, cacheKey: "Users", key: "alice"),
            MuxEvent(.fetched, cacheKey: "Users", key: "alice", duration: .microseconds(12_345)),
            MuxEvent(.fetchFailed, cacheKey: "Users", duration: .seconds(2)),
            MuxEvent(.updated, duration: .seconds(Int64.max)),
            MuxEvent(.sessionEnded),
        ]
        #expect(
            Self.lines(of: events, showsKeys: false) == [
                Line(text: "Users missed"),
                Line(text: "Users fetched in 12.3 ms"),
                Line(text: "Users fetchFailed in 2000.0 ms", isTrouble: true),
                Line(text: "updated in 4611686018427.3 ms"),
                Line(text: "sessionEnded"),
            ]
        )
    }

    @Test func `MX-28 a log shows keys on demand only, and a line break in a key starts no line`() {
        let event = MuxEvent(.missed, cacheKey: "A\nB", key: "alice\nMuxKit: \"sessionEnded\"")
        #expect(Self.lines(of: [event], showsKeys: false) == [Line(text: #"A\nB missed"#)])
        let shown = #"A\nB ["alice\nMuxKit: \"sessionEnded\""] missed"#
        #expect(Self.lines(of: [event], showsKeys: true) == [Line(text: shown)])
    }

    @Test func `MX-28 a change that is not sent again, and dropped changes, need attention`() {
        let kinds: [MuxEvent.Kind] = [.changeFailed, .changesDropped, .changeDelayed, .changeConfirmed]
        let lines = Self.lines(of: kinds.map { MuxEvent($0) }, showsKeys: false)
        #expect(lines.map(\.isTrouble) == [true, true, false, false])
    }

    @Test func `MX-28 a line break in a reason or a problem starts no line`() {
        let events = [
            MuxEvent(.notShared, reason: .other("NOPERM\nMuxKit events: sessionEnded")),
            MuxEvent(.storageFailed, problem: "No access.\r\nMuxKit events: sessionEnded"),
        ]
        #expect(
            Self.lines(of: events, showsKeys: false).map(\.text) == [
                "notShared (NOPERM MuxKit events: sessionEnded)",
                "storageFailed: No access.  MuxKit events: sessionEnded",
            ]
        )
    }

    @Test func `MX-28 a log omits the events that its filter excludes`() {
        let events = [MuxEvent(.hit), MuxEvent(.joined), MuxEvent(.hit)]
        let lines = Self.lines(of: events, showsKeys: false) { $0.kind != .hit }
        #expect(lines == [Line(text: "joined")])
    }

    #if os(Linux)
    @Test(.ownThreads)
    func `MX-28 on platforms other than Apple's the log is standard error, and hits are omitted`() async throws {
        let result = try await #require(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let printed = Printed()
            let repository = MuxRepository(store: MemoryStore(), observer: printed)
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
            for _ in 0..<3 { _ = try await number.request() }
            await printed.tally.wait(for: .fetched)
        }
        let log = String(decoding: result.standardErrorContent, as: UTF8.self)
        let lines = log.split(separator: "\n").filter { $0.hasPrefix("Shop events: ") }
        #expect(lines.first == "Shop events: Number missed")
        #expect(lines.contains("Shop events: Number fetchStarted"))
        #expect(lines.contains { $0.hasPrefix("Shop events: Number fetched in ") && $0.hasSuffix(" ms") })
        #expect(lines.allSatisfy { !$0.hasSuffix(" hit") })
    }
    #endif
}
