public import Foundation

/// Decodes the output of a successful response, and the server error of a failure response.
///
/// ```swift
/// var mapper: HTTPMapper<User> { .json(errors: Problem.self, dates: .millisecondsSince1970) }
/// ```
public struct HTTPMapper<Output: Sendable>: Sendable {
    private let makeOutput: @Sendable (HTTPResponse) throws -> Output
    private let makeServerError: @Sendable (HTTPResponse) throws -> (any Sendable)?

    /// Makes a mapper from two functions.
    ///
    /// - Parameters:
    ///   - output: Decodes the output of a successful response.
    ///   - serverError: Decodes the body of a failure response; returns `nil` to ignore the body.
    public init(
        output: @escaping @Sendable (HTTPResponse) throws -> Output,
        serverError: @escaping @Sendable (HTTPResponse) throws -> (any Sendable)? = { _ in nil }
    ) {
        self.makeOutput = output
        self.makeServerError = serverError
    }

    /// Decodes the output of a successful response.
    ///
    /// - Throws: ``HTTPError/decoding(_:)``.
    package func output(of response: HTTPResponse) throws(HTTPError) -> Output {
        do {
            return try self.makeOutput(response)
        } catch {
            throw .decoding(HTTPError.DecodingFailure(response, underlying: error))
        }
    }

    /// Makes the error for a failure response.
    package func failure(of response: HTTPResponse) -> HTTPError.StatusFailure {
        do {
            return HTTPError.StatusFailure(response, serverError: try self.makeServerError(response))
        } catch {
            return HTTPError.StatusFailure(response, decodingError: error)
        }
    }

    /// Returns a mapper that transforms the output of this mapper.
    ///
    /// - Parameter transform: Makes the new output from the output of this mapper. A thrown error becomes
    ///   ``HTTPError/decoding(_:)``.
    /// - Returns: The mapper.
    public func map<Other: Sendable>(_ transform: @escaping @Sendable (Output) throws -> Other) -> HTTPMapper<Other> {
        HTTPMapper<Other>(output: { try transform(try self.makeOutput($0)) }, serverError: self.makeServerError)
    }

    /// Returns a decoder for server errors in JSON; for `Never`, the body is ignored.
    private static func errors<ServerError: Decodable & Sendable>(
        _ type: ServerError.Type,
        _ decoder: @escaping @Sendable () -> JSONDecoder
    ) -> @Sendable (HTTPResponse) throws -> (any Sendable)? {
        guard type != Never.self else { return { _ in nil } }
        return { try decoder().decode(type, from: $0.body) }
    }
}

extension HTTPMapper where Output: Decodable {
    /// Decodes JSON.
    ///
    /// An empty body is `nil` if the output is an optional.
    ///
    /// - Parameters:
    ///   - errors: The type of the body of a failure response; with `Never`, the body is ignored.
    ///   - dates: The format of dates; by default calendar dates in ISO 8601, with or without a time.
    /// - Returns: The mapper.
    public static func json<ServerError: Decodable & Sendable>(
        errors: ServerError.Type = Never.self,
        dates: JSONDecoder.DateDecodingStrategy = .tolerantISO8601
    ) -> HTTPMapper {
        self.json(errors: errors) { .decoding(dates) }
    }

    /// Decodes JSON with a custom decoder.
    ///
    /// An empty body is `nil` if the output is an optional.
    ///
    /// - Parameters:
    ///   - errors: The type of the body of a failure response; with `Never`, the body is ignored.
    ///   - decoder: Makes a decoder for each response.
    /// - Returns: The mapper.
    public static func json<ServerError: Decodable & Sendable>(
        errors: ServerError.Type = Never.self,
        decoder: @escaping @Sendable () -> JSONDecoder
    ) -> HTTPMapper {
        HTTPMapper(
            output: { response in
                if response.body.isEmpty, let absent = Self.absent { return absent }
                return try decoder().decode(Output.self, from: response.body)
            },
            serverError: self.errors(errors, decoder)
        )
    }

    /// `nil` as an output, if the output type is an optional.
    private static var absent: Output? {
        func make<Optional: ExpressibleByNilLiteral>(_ type: Optional.Type) -> Any { type.init(nilLiteral: ()) }
        return (Output.self as? any ExpressibleByNilLiteral.Type).flatMap { make($0) as? Output }
    }
}

extension HTTPMapper where Output == Data {
    /// Returns the body unchanged.
    ///
    /// - Parameter errors: The type of the JSON body of a failure response; with `Never`, the body is
    ///   ignored.
    /// - Returns: The mapper.
    public static func data<ServerError: Decodable & Sendable>(errors: ServerError.Type = Never.self) -> HTTPMapper {
        HTTPMapper(output: { $0.body }, serverError: self.errors(errors) { .tolerant })
    }
}

extension HTTPMapper where Output == Void {
    /// Ignores the body.
    ///
    /// - Parameter errors: The type of the JSON body of a failure response; with `Never`, the body is
    ///   ignored.
    /// - Returns: The mapper.
    public static func ignoringBody<ServerError: Decodable & Sendable>(
        errors: ServerError.Type = Never.self
    ) -> HTTPMapper {
        HTTPMapper(output: { _ in }, serverError: self.errors(errors) { .tolerant })
    }
}

extension HTTPMapper where Output == String {
    /// Decodes the body as UTF-8 text; invalid bytes become replacement characters.
    ///
    /// - Parameter errors: The type of the JSON body of a failure response; with `Never`, the body is
    ///   ignored.
    /// - Returns: The mapper.
    public static func text<ServerError: Decodable & Sendable>(errors: ServerError.Type = Never.self) -> HTTPMapper {
        HTTPMapper(output: { String(decoding: $0.body, as: UTF8.self) }, serverError: self.errors(errors) { .tolerant })
    }
}

extension JSONDecoder {
    static var tolerant: JSONDecoder { .decoding(.tolerantISO8601) }

    fileprivate static func decoding(_ dates: DateDecodingStrategy) -> JSONDecoder {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = dates
        return decoder
    }
}
