import Foundation

/// A request that is ready but for its token: everything that a token does not change is made once.
struct HTTPDraft: Sendable {
    private let call: HTTPCall
    private let headers: HTTPHeaders

    /// Prepares a request.
    init(
        _ request: some HTTPRequest,
        path values: [String: String],
        headers: HTTPHeaders,
        configuration: HTTPConfiguration
    ) throws(HTTPPreparationError) {
        let values = request.pathValues.merging(values) { $1 }
        let url = try request.endPoint.url(path: values, query: request.queryItems)
        let method = request.method
        guard HTTPGrammar.isToken(method.rawValue) else { throw .invalidMethod }

        var fields = HTTPHeaders()
        if !request.usesPrivateHeaders {
            fields = [.accept: configuration.contentType.rawValue]
            fields = fields.merging(configuration.headers)
        }
        var data: Data?
        if let body = request.body {
            guard method.allowsBody else { throw .bodyNotAllowed(method) }
            let encoded = try body.encoded()
            fields[.contentType] = (encoded.contentType ?? configuration.contentType).rawValue
            data = encoded.data
        }
        self.headers = fields.merging(request.headers).merging(headers)
        self.call = HTTPCall(
            method: method.rawValue,
            url: url,
            body: data,
            timeout: request.timeout ?? configuration.transport.timeout
        )
    }

    /// The request with the headers of a token, which count most.
    func call(with token: HTTPHeaders = [:]) throws(HTTPError) -> HTTPCall {
        var call = self.call
        call.headers = self.headers.merging(token).combined
        call.credentialHeaders = Set(token.fields.map(\.name.rawValue))
        _ = try call.validated()
        return call
    }
}
