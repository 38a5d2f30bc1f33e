#if compiler(>=6.3) && os(Linux)
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// `URLSession` on Linux, in separate processes, because some responses end the process.
@Suite(.standard(.waiting), .serialized)
struct URLSessionCrashTests {
    typealias Rule = HTTPTransportConformance.Rule

    /// The rules that `URLSession` cannot keep on Linux (Swift 6.3.1), and the reasons.
    static let impossible: [Rule: String] = [
        .requestFields: "it takes a dictionary of fields",
        .emptyFields: "it leaves out a field whose value is a blank",
        .bodiesInPieces: "a streamed body is read whole first",
        .slowServers: "a streamed body is read whole first",
        .keptConnections: "libcurl sends the request again, and Foundation allows it",
        .addresses: "URLs with an address of IPv6 are refused (swift-corelibs-foundation#5496)",
        .repeatedFields: "it gives a dictionary of fields",
        .fieldBytes: "it fails if a field is not ASCII",
        .malformedHeads: "its errors do not tell, and some end the process",
        .unknownCodings: "libcurl decodes, and fails if it does not know how",
        .cutContent: "libcurl decodes, and takes a content that ends early for a complete one",
        .interimResponses: "it gives 103 for the answer",
        .unusableLocations: "it gives no answer",
        .otherProtocols: "its errors do not tell",
        .missingResponses: "its errors do not tell",
        .halfChunks: "its errors do not tell",
    ]

    /// Rules whose servers end the process: swift-corelibs-foundation#5285.
    static let fatal: Set<Rule> = [.trailers, .halfHeads]

    /// In a separate process, because a response may end the process.
    @Test(.ownThreads, .onlyInWholeRuns) func `TR-01 URLSession keeps the rules that it is documented to keep`() async {
        await #expect(processExitsWith: .success) {
            let excluded = URLSessionCrashTests.fatal.union(URLSessionCrashTests.impossible.keys)
            try await HTTPTransportConformance.run(within: .busyMachine * 4, excluding: excluded) { options in
                URLSessionTransport(options)
            }
        }
    }

    @Test(.ownThreads, .onlyInWholeRuns)
    func `TR-01 each known limitation of URLSession on Linux breaks its rule`() async {
        await #expect(processExitsWith: .success) {
            for (rule, reason) in URLSessionCrashTests.impossible {
                let others = Set(Rule.allCases).subtracting([rule])
                let error = await #expect(throws: ConformanceFailure.self) {
                    try await HTTPTransportConformance.run(within: .seconds(2), excluding: others) { options in
                        URLSessionTransport(options)
                    }
                }
                #expect(error?.rule == rule.rawValue, "it can: \(reason)")
            }
        }
    }

    @Test(.ownThreads, .onlyInWholeRuns, arguments: Self.fatal.map(\.rawValue).sorted())
    func `TR-01 trailers and half heads end a process that uses URLSession on Linux`(rule: String) async {
        await #expect(processExitsWith: .failure) { [rule] in
            let others = Set(Rule.allCases.filter { $0.rawValue != rule })
            try await HTTPTransportConformance.run(excluding: others) { options in URLSessionTransport(options) }
        }
    }
}
#endif
