// Copy this file, AlamofireErrors.swift and ClientCall.swift into an app with Moya 15. The errors in a `MoyaError` are
// errors of Alamofire.
//
//     nonisolated(unsafe) let provider = MoyaProvider<API>()
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await provider.value(of: .profile) }

import Foundation
public import Moya
public import MuxKit

extension Moya.MoyaError: MuxKit.WrappingError {
    /// The error of Alamofire or of the decoder, the status, or a permanent failure.
    public nonisolated var wrappedError: (any Error)? {
        if case .statusCode(let response) = self { return ClientStatusError(status: response.statusCode) }
        return (self as NSError).userInfo[NSUnderlyingErrorKey] as? any Error ?? ClientFailure()
    }
}

nonisolated extension MoyaProvider {
    /// Sends a request, and decodes the body of a response with a status from 200 to 299.
    ///
    /// - Throws: `MoyaError`, or `CancellationError`.
    func value<Value: Decodable & Sendable>(of target: Target, as type: Value.Type = Value.self) async throws -> Value {
        // `Response` of Moya is not `Sendable`: the completion handler decodes, and not on the main queue.
        try await ClientCall<Value>.run { completion in
            nonisolated(unsafe) let call = self.request(target, callbackQueue: .global()) { result in
                completion(Result { try result.get().filterSuccessfulStatusCodes().map(type) })
            }
            return { call.cancel() }
        }
    }
}
