// Copy this file and ClientCall.swift into an app with Alamofire 5.
//
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") {
//         try await AF.request(url).validate().serializingDecodable(Profile.self).value
//     }

public import Alamofire
public import MuxKit

extension Alamofire.AFError: MuxKit.WrappingError {
    /// The error of the URL session or of the decoder, the status, or the cancellation.
    public var wrappedError: (any Error)? {
        if case .explicitlyCancelled = self { return CancellationError() }
        return self.responseCode.map { ClientStatusError(status: $0) } ?? self.underlyingError
    }
}
