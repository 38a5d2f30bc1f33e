// Copy this file and ClientCall.swift into an app with Alamofire 5.
//
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") {
//         try await AF.request(url).validate().serializingDecodable(Profile.self).value
//     }

public import Alamofire
public import MuxKit

extension Alamofire.AFError: MuxKit.WrappingError {
    /// The error of the URL session or of the decoder, the status, the cancellation, or a permanent failure.
    public nonisolated var wrappedError: (any Error)? {
        if case .explicitlyCancelled = self { return CancellationError() }
        if let status = self.responseCode { return ClientStatusError(status: status) }
        return self.underlyingError ?? ClientFailure()
    }
}
