import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The platform-independent part of the code that delays the suspension or the end of an app during a save.
@Suite(.standard)
struct BackgroundSaveTests {
    @Test func `CO-32 an activity does the work in its first call only`() {
        for hasExpired in [false, true] {
            let works = Locked(0)
            BackgroundNotices.finishing(isLast: false) { block in
                for hasExpired in [hasExpired, true, true, false] { block(hasExpired) }
            } _: { ended in
                _ = works.next()
                ended()
            }
            #expect(works.withLock { $0 } == 1)
        }
    }

    @Test func `CO-32 an activity that expires before its start does the work all the same`() {
        let (works, ends) = (Locked(0), Locked<[@Sendable () -> Void]>([]))

        BackgroundNotices.finishing(isLast: false) { block in
            block(true)
            block(true)
        } _: { ended in
            _ = works.next()
            ends.withLock { $0.append(ended) }
        }

        #expect(works.withLock { $0 } == 1)
        for end in ends.withLock({ $0 }) { end() }
    }

    @Test func `CO-32 an activity delays suspension until the work has ended or the time has expired`()
        async
    {
        // The first call of the block returns after the end of the work or of the time.
        for timeIsOver in [false, true] {
            let (begun, returned) = (Tally(), Tally())
            let block = Locked<(@Sendable (Bool) -> Void)?>(nil)
            let end = Locked<(@Sendable () -> Void)?>(nil)
            BackgroundNotices.finishing(isLast: false) { given in
                block.withLock { $0 = given }
                DispatchQueue.global().async {
                    given(false)
                    returned.add()
                }
            } _: { ended in
                end.withLock { $0 = ended }
                begun.add()
            }
            await begun.reached(1)

            if timeIsOver { block.withLock { $0 }?(true) } else { end.withLock { $0 }?() }

            await returned.reached(1)
        }
    }

    @Test func `CO-32 the end of an app waits for the work and no longer than the limit`() async {
        let isDone = await BlockingWork.run { () -> Bool in
            let isDone = Locked(false)
            BackgroundNotices.finishing(isLast: true) { ended in
                DispatchQueue.global().async {
                    isDone.withLock { $0 = true }
                    ended()
                }
            }
            return isDone.withLock { $0 }
        }
        #expect(isDone)

        // The call returns although the work never ends.
        await BlockingWork.run { BackgroundNotices.finishing(isLast: true, limit: .milliseconds(1)) { _ in } }
    }

    @Test func `CO-32 values are on disk when the notification of an app's end returns`() async throws {
        let name = try #require(BackgroundNotices.lastNames.first)
        var isSaved = false
        // The end of an app is delayed by at most four seconds.
        // A busy machine may need longer once, but not ten times in a row.
        for _ in 0..<10 where !isSaved {
            let store = MemoryStore()
            let repository = MuxRepository(
                store: store,
                durability: .relaxed,
                savePolicy: .enteringBackground,
                observer: nil,
                time: TimeSource(VirtualClock()),
                wallTime: { Date() },
                random: { 0.5 },
                spawn: TaskLauncher(),
                backgroundNotifications: [name]
            )
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
            _ = try await number.request()

            let time = await BlockingWork.run {
                ContinuousClock().measure { NotificationCenter.default.post(name: name, object: nil) }
            }

            isSaved = await store.load(.init(domain: "Number")) != nil
            if time < .seconds(4) { #expect(isSaved) }
        }
        #expect(isSaved)
    }
}
