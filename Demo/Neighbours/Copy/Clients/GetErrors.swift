// Copy this file and ClientCall.swift into an app with Get 2, which throws errors of the URL session and of the decoder
// unchanged.
//
//     let client = APIClient(baseURL: url)
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") {
//         try await client.send(Request<Profile>(path: "/profile")).value
//     }

public import Get
public import MuxKit

extension Get.APIError: MuxKit.WrappingError {
    /// The status.
    public nonisolated var wrappedError: (any Error)? {
        switch self {
        case .unacceptableStatusCode(let status): ClientStatusError(status: status)
        }
    }
}
