#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Synchronization
import Testing

/// libcurl frees the allocations of a transfer with the transfer: handles, lists of fields, and texts.
@Suite(.standard, .serialized)
struct CurlLeakTests {
    /// The number of libcurl's allocations that are not freed.
    private static let live = Atomic(0)

    /// Makes libcurl allocate with counting functions, before any other use of libcurl.
    private static func count() -> Bool {
        typealias Allocate = @convention(c) (Int) -> UnsafeMutableRawPointer?
        typealias Free = @convention(c) (UnsafeMutableRawPointer?) -> Void
        typealias Reallocate = @convention(c) (UnsafeMutableRawPointer?, Int) -> UnsafeMutableRawPointer?
        typealias Copy = @convention(c) (UnsafePointer<CChar>?) -> UnsafeMutablePointer<CChar>?
        typealias AllocateZeroed = @convention(c) (Int, Int) -> UnsafeMutableRawPointer?
        typealias Initialize =
            @convention(c) (CLong, Allocate, Free, Reallocate, Copy, AllocateZeroed) -> CInt
        guard let library = unsafe dlopen("libcurl.so.4", RTLD_NOW),
            let symbol = unsafe dlsym(library, "curl_global_init_mem")
        else { return false }
        let initialize = unsafe unsafeBitCast(symbol, to: Initialize.self)
        let result = unsafe initialize(
            3,
            { size in
                CurlLeakTests.live.add(1, ordering: .relaxed)
                return unsafe malloc(size)
            },
            { pointer in
                if unsafe pointer != nil { CurlLeakTests.live.subtract(1, ordering: .relaxed) }
                unsafe free(pointer)
            },
            { pointer, size in
                if unsafe pointer == nil { CurlLeakTests.live.add(1, ordering: .relaxed) }
                return unsafe realloc(pointer, size)
            },
            { text in
                CurlLeakTests.live.add(1, ordering: .relaxed)
                return unsafe text.flatMap { unsafe strdup($0) }
            },
            { number, size in
                CurlLeakTests.live.add(1, ordering: .relaxed)
                return unsafe calloc(number, size)
            }
        )
        return result == 0
    }

    @Test(.ownThreads) func `PT-02 a thousand transfers leave no allocation in libcurl`() async {
        await #expect(processExitsWith: .success) {
            try #require(CurlLeakTests.count())
            let server = LoopbackServer { request in
                request.path == "/cut"
                    ? LoopbackServer.Response(steps: [.close])
                    : LoopbackServer.Response(status: 200, headers: ["X": "1"], body: Data("body".utf8))
            }
            try server.start()
            let transport = SystemTransport()
            func send(_ count: Int) async throws {
                for number in 0..<count {
                    let url = server.url.appending(path: number % 5 == 0 ? "cut" : "whole")
                    let isUpload = number % 2 == 0
                    let call = HTTPCall(
                        method: isUpload ? "POST" : "GET",
                        url: url,
                        headers: ["X-One": "1", "X-Two": "", "X-Number": "\(number)"],
                        body: isUpload ? .data(Data("upload".utf8)) : nil
                    )
                    let reply = try? await transport.send(call)
                    #expect((reply?.status == 200) == (number % 5 != 0))
                }
                // A cancelled transfer is freed too.
                let call = Task { try await transport.send(HTTPCall(url: server.url)) }
                call.cancel()
                _ = try? await call.value
                _ = try await transport.send(HTTPCall(url: server.url))
            }
            try await send(100)
            let before = CurlLeakTests.live.load(ordering: .relaxed)
            try #require(before > 0)
            try await send(1_000)
            let growth = CurlLeakTests.live.load(ordering: .relaxed) - before
            // The last transfer is freed a moment after its response.
            #expect(growth < 200, "\(growth) allocations of 1,000 transfers are left")
            await server.stop()
        }
    }
}
#endif
