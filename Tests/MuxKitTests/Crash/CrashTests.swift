#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard, .ownThreads)
struct CrashTests {
    /// Kills the process at call `number`, in a write after `bytes` bytes.
    private static func killer(_ number: Int, _ bytes: Int) -> RecordingFileSystem {
        RecordingFileSystem { count, _ in
            count == number ? .performInWrite(after: bytes) { raise(SIGKILL) } : nil
        }
    }

    /// The numbers of the calls at which a process is killed.
    ///
    /// The process is killed at each rename and at one of four other calls; with `MUX_SCHEDULES=4`, at each
    /// call.
    private static func places(in calls: [FileCall]) -> [Int] {
        #expect(!calls.isEmpty)
        return calls.indices.filter { $0.isMultiple(of: repetitionStep) || calls[$0].operation == .rename }.map {
            $0 + 1
        }
    }

    private func prepared(_ scenario: CrashScenario) async throws -> Scratch {
        let scratch = Scratch()
        try await scenario.prepare(scratch)
        return scratch
    }

    private func kill(
        _ scenario: CrashScenario,
        _ prepared: Scratch,
        at number: Int,
        after bytes: Int
    ) async throws {
        let scratch = try Scratch(copyOf: prepared)

        let path = scratch.folder.path
        let work = scenario.rawValue
        await #expect(processExitsWith: .signal(SIGKILL)) {
            [path = path as String, work = work as String, number, bytes] in
            let scenario = try #require(CrashScenario(rawValue: work))
            try await scenario.run(Scratch(path), Self.killer(number, bytes))
        }

        let what: Comment = "\(scenario) killed at call \(number) after \(bytes) bytes"
        try await scenario.verify(scratch, isDone: false, what)
    }

    @Test func `DK-02 after a kill at any call of a save a reader gets the old or the new entry`() async throws {
        let calls = try await CrashScenario.save.calls()
        let prepared = try await self.prepared(.save)

        for number in Self.places(in: calls) {
            for bytes in calls[number - 1].operation == .write ? [100, 400, 1 << 20] : [0] {
                try await self.kill(.save, prepared, at: number, after: bytes)
            }
        }
    }

    @Test func `DK-02 after a kill at any call of a compaction a reader gets the old or the new journal`() async throws
    {
        let calls = try await CrashScenario.compactingSave.calls()
        let prepared = try await self.prepared(.compactingSave)
        #expect(calls.contains(FileCall(.rename, "00000001.jsonl")))

        for number in Self.places(in: calls) { try await self.kill(.compactingSave, prepared, at: number, after: 300) }
    }

    @Test(arguments: [CrashScenario.indexedSave, .indexedCompaction, .evictingSave])
    func `DK-07 after a kill at any call with an index and a limit a reader is not misled`(scenario: CrashScenario)
        async throws
    {
        let calls = try await scenario.calls()
        let prepared = try await self.prepared(scenario)
        #expect(calls.contains(FileCall(.rename, "00000001.index")))

        for number in Self.places(in: calls) { try await self.kill(scenario, prepared, at: number, after: 300) }
    }

    @Test func `AC-05 after a kill at any call of a removal a reader gets the entry or no entry`() async throws {
        let calls = try await CrashScenario.erase.calls()
        let prepared = try await self.prepared(.erase)
        #expect(calls.filter { $0.operation == .write }.count > 2, "tombstones, and a write for each value")

        for number in Self.places(in: calls) {
            for bytes in calls[number - 1].operation == .write ? [5, 1 << 20] : [0] {
                try await self.kill(.erase, prepared, at: number, after: bytes)
            }
        }
    }

    @Test func `RP-05 after a kill at any call of a sign-out the next process finishes the sign-out`() async throws {
        let calls = try await CrashScenario.signOut.calls()
        let prepared = try await self.prepared(.signOut)

        for number in Self.places(in: calls) { try await self.kill(.signOut, prepared, at: number, after: 20) }
    }

    @Test(arguments: CrashScenario.allCases)
    func `DK-02 after an interruption at any call and byte the folder is consistent`(scenario: CrashScenario)
        async throws
    {
        let calls = try await scenario.calls()
        let prepared = try await self.prepared(scenario)

        for number in 1...calls.count {
            for bytes in calls[number - 1].operation == .write ? [0, 1, 350, 1 << 20] : [0] {
                let scratch = try Scratch(copyOf: prepared)
                // Like the end of the process at this call: later calls, also clean-up calls, have no effect.
                let fileSystem = RecordingFileSystem { count, _ in count == number ? .fail(after: bytes, EIO) : nil }
                try? await scenario.run(scratch, fileSystem)
                try await scenario.verify(scratch, isDone: false, "\(scenario), call \(number) (\(calls[number - 1]))")
            }
        }
    }

    @Test(arguments: CrashScenario.allCases)
    func `DK-02 partial writes are continued`(scenario: CrashScenario) async throws {
        for count in [1, 100] {
            let scratch = Scratch()
            try await scenario.prepare(scratch)
            let fileSystem = RecordingFileSystem { _, call in call.operation == .write ? .shorten(to: count) : nil }

            try await scenario.run(scratch, fileSystem)

            try await scenario.verify(scratch, isDone: true, "\(scenario), \(count) bytes a time")
        }
    }

    @Test(arguments: CrashScenario.allCases)
    func `DK-12 any single refused call causes an error or does no harm`(scenario: CrashScenario) async throws {
        let calls = try await scenario.calls()
        let prepared = try await self.prepared(scenario)

        for number in 1...calls.count {
            let scratch = try Scratch(copyOf: prepared)
            let fileSystem = RecordingFileSystem { count, _ in count == number ? .refuse(ENOSPC) : nil }
            var isDone = false
            do {
                try await scenario.run(scratch, fileSystem)
                isDone = true
            } catch {
                guard case MuxStoreError.fileSystem(_, ENOSPC) = error else {
                    Issue.record("\(error)")
                    continue
                }
            }
            try await scenario.verify(scratch, isDone: isDone, "\(scenario), call \(number) (\(calls[number - 1]))")
        }
    }
}
#endif
