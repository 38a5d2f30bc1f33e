import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard(.waiting))
struct TransportConformanceTests {
    typealias Rule = HTTPTransportConformance.Rule

    /// All rules except `rules`.
    private static func others(_ rules: Set<Rule>) -> Set<Rule> { Set(Rule.allCases).subtracting(rules) }

    // MARK: - The transports of this library

    #if os(Linux)
    @Test func `TR-01 libcurl keeps every rule of a transport`() async throws {
        try await HTTPTransportConformance.run(within: .busyMachine * 4) { options in SystemTransport(options) }
    }
    #else
    /// Rules that `URLSession` cannot keep on Apple platforms according to its documentation; not tested.
    private static let impossible: Set<Rule> = [
        .requestFields, .emptyFields, .bodiesInPieces, .slowServers, .brokenBodies, .repeatedFields, .trailers,
        .unknownCodings, .cutContent, .interimResponses, .unusableLocations, .simultaneousBodies, .earlyResponses,
        .keptConnections, .fieldBytes,
    ]

    @Test func `TR-01 URLSession keeps the rules that it is documented to keep`() async throws {
        try await HTTPTransportConformance.run(within: .busyMachine * 4, excluding: Self.impossible) { options in
            URLSessionTransport(options)
        }
    }
    #endif

    #if os(Linux)
    /// Throws failures of the transport without an `HTTPError`, as the protocol permits.
    private struct BareTransport: HTTPTransport {
        let base: SystemTransport

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            do { return try await self.base.send(call) } catch HTTPError.transport(let failure, _) { throw failure }
        }
    }

    @Test func `TR-01 a transport may throw a failure without an HTTPError`() async throws {
        let others = Self.others([.malformedHeads, .keptConnections])
        try await HTTPTransportConformance.run(within: .busyMachine, excluding: others) { options in
            BareTransport(base: SystemTransport(options))
        }
    }

    @Test(.ownThreads) func `CO-29 the rule of the deadline holds while all threads of the pool are busy`() async {
        await #expect(processExitsWith: .success) {
            let others = Set(Rule.allCases).subtracting([.slowResponses])
            try await HTTPTransportConformance.run(within: .busyMachine, excluding: others) { options in
                // Simulates tests with long computations: from before the deadline until a response of 1.25
                // seconds would be complete.
                Thread.detachNewThread {
                    Self.holdThread(milliseconds: 100)
                    for _ in 0..<2 * ProcessInfo.processInfo.activeProcessorCount {
                        Task { Self.holdThread(milliseconds: 1_700) }
                    }
                }
                return SystemTransport(options)
            }
        }
    }

    private static func holdThread(milliseconds: Int) {
        _ = DispatchSemaphore(value: 0).wait(timeout: .now() + .milliseconds(milliseconds))
    }
    #endif

    // MARK: - The suite

    /// The rules that a fault breaks.
    private static func rules(against fault: FaultyTransport.Fault) -> Set<Rule> {
        switch fault {
        case .lowersMethods: [.methods]
        case .sortsFields: [.requestFields]
        case .dropsEmptyFields: [.emptyFields]
        case .sendsBodyUnasked: [.emptyBodies]
        case .cutsBodies: [.largeBodies, .resentBodies]
        case .losesLastPiece: [.streamedBodies]
        case .collectsStreams: [.bodiesInPieces, .slowServers]
        case .sendsHalfStreams: [.brokenBodies]
        case .asksTwice: [.keptConnections]
        case .dropsFramingFields: [.framingFields]
        case .swapsAnswers: [.manyCalls]
        case .refusesIPv6: [.addresses]
        case .addsCoding: [.knownCodings]
        case .waitsForWhole: [.responsesInPieces, .resetBodies, .cancelledInBody, .slowSinks]
        case .mergesCookies: [.repeatedFields]
        case .replacesBytes: [.fieldBytes]
        case .dropsTrailers: [.trailers]
        case .dropsUnknownCodings: [.unknownCodings]
        case .hidesTruncation: [.cutContent, .halfBodies, .halfChunks, .resetBodies]
        case .acceptsAnyContent: [.damagedContent]
        case .addsBodyToHead: [.responsesWithoutBody]
        case .hasNoBodyLimit: [.bodyLimit]
        case .keepsCredentials: [.credentials]
        case .hasNoRedirectionLimit: [.redirectionLimit]
        case .followsAnyStatus: [.otherRedirections]
        case .losesRedirectedBodies: [.resentStreams]
        case .forgetsFragment: [.relativeLocations]
        case .saysUnreachable:
            [
                .refusedConnections, .unknownNames, .otherProtocols, .missingResponses, .halfHeads, .halfBodies,
                .halfChunks, .resetBodies, .silence, .slowResponses, .callLimits, .bodyLimit, .bodiesForOthers,
                .foreignSchemes, .redirectionLimit, .cutContent,
            ]
        case .saysTruncated: [.refusedConnections, .missingResponses, .halfHeads, .otherProtocols]
        case .hasLongTimeout: [.silence]
        case .hasNoDeadline: [.slowResponses]
        case .ignoresLimitsOfCalls: [.callLimits]
        case .ignoresCancellation: [.cancelledWaiting, .cancelledInBody]
        case .sendsWhenCancelled, .changesCancellation: [.cancelledBefore]
        case .wrapsSinkErrors: [.sinkErrors]
        case .readsAhead: [.slowSinks, .responsesInPieces]
        }
    }

    @Test(arguments: FaultyTransport.Fault.allCases)
    func `TR-01 a transport with one fault breaks the rule that forbids the fault`(
        fault: FaultyTransport.Fault
    ) async throws {
        for rule in Self.rules(against: fault).sorted(by: { $0.rawValue < $1.rawValue }) {
            let error = await #expect(throws: ConformanceFailure.self, "\(rule)") {
                try await HTTPTransportConformance.run(within: .seconds(3), excluding: Self.others([rule])) { options in
                    FaultyTransport(fault, options)
                }
            }
            #expect(error?.rule == rule.rawValue)
        }
    }

    @Test(.onlyInWholeRuns) func `TR-01 a transport that only forwards calls keeps every rule that its base keeps`()
        async throws
    {
        #if os(Linux)
        let impossible: Set<Rule> = []
        #else
        let impossible = Self.impossible
        #endif
        try await HTTPTransportConformance.run(within: .busyMachine * 4, excluding: impossible) { options in
            FaultyTransport(nil, options)
        }
    }

    @Test func `TR-01 a transport in memory with the same response to all requests breaks the first rule`() async {
        let error = await #expect(throws: ConformanceFailure.self) {
            try await HTTPTransportConformance.run { _ in ScriptedTransport([], thereafter: HTTPReply(status: 200)) }
        }

        #expect(error == ConformanceFailure(rule: Rule.methods.rawValue, detail: error?.detail ?? ""))
        #expect(error?.detail.contains("GET") == true)
    }

    @Test func `TR-01 a transport without responses breaks a rule within the limit`() async {
        let gate = Gate<HTTPReply>()
        let error = await #expect(throws: ConformanceFailure.self) {
            try await HTTPTransportConformance.run(within: .milliseconds(200)) { _ in
                ScriptedTransport { _, _ in try await gate.pass() }
            }
        }

        #expect(error?.detail.contains("did not end within") == true)
    }

    @Test func `TR-01 an error of the closure that creates a transport is thrown unchanged`() async {
        struct NoTransport: Error {}
        await #expect(throws: NoTransport.self) {
            try await HTTPTransportConformance.run { _ in throw NoTransport() }
        }
    }
}
