public import Foundation

/// The body of a request, with its media type.
///
/// ```swift
/// var body: HTTPBody? { .json(self.profile) }
/// var body: HTTPBody? { .form(["grant_type": "refresh_token", "refresh_token": self.token]) }
/// ```
///
/// It is encoded when the request is sent, always to the same bytes, so a request may be repeated.
public struct HTTPBody: Sendable {
    private let encode: @Sendable () throws -> (body: HTTPCall.Body, contentType: HTTPMediaType?)

    /// A body that is encoded when the request is sent.
    ///
    /// - Parameter encode: Returns the bytes, the same every time, and their media type; its errors become
    ///   ``HTTPError/PreparationFailure/encoding(_:)``.
    public init(_ encode: @escaping @Sendable () throws -> (data: Data, contentType: HTTPMediaType?)) {
        self.encode = {
            let encoded = try encode()
            return (.data(encoded.data), encoded.contentType)
        }
    }

    /// A body whose pieces are made while it is sent, so that no more than a piece of it is in memory.
    ///
    /// - Parameters:
    ///   - stream: The pieces.
    ///   - contentType: Their media type; `nil` for that of the client's configuration.
    /// - Returns: The body.
    public static func stream(_ stream: HTTPCall.BodyStream, _ contentType: HTTPMediaType? = nil) -> HTTPBody {
        HTTPBody(stream: stream, contentType)
    }

    private init(stream: HTTPCall.BodyStream, _ contentType: HTTPMediaType?) {
        self.encode = { (.stream(stream), contentType) }
    }

    /// Bytes as they are.
    ///
    /// - Parameters:
    ///   - data: The bytes.
    ///   - contentType: Their media type; `nil` for that of the client's configuration.
    /// - Returns: The body.
    public static func data(_ data: Data, _ contentType: HTTPMediaType? = nil) -> HTTPBody {
        HTTPBody { (data, contentType) }
    }

    /// Text in UTF-8.
    public static func text(_ text: String) -> HTTPBody { .data(Data(text.utf8), .utf8Text) }

    /// A value as JSON.
    ///
    /// - Parameters:
    ///   - value: The value.
    ///   - encoder: Encodes it; by default with sorted keys, unescaped slashes, and dates in ISO 8601 to the second.
    /// - Returns: The body.
    public static func json(_ value: some Encodable & Sendable, encoder: JSONEncoder? = nil) -> HTTPBody {
        HTTPBody { (try (encoder ?? Self.encoder()).encode(value), .json) }
    }

    /// A JSON object of values of mixed kinds: `.json(["name": "x", "age": 5])`.
    public static func json(_ object: [String: JSONValue], encoder: JSONEncoder? = nil) -> HTTPBody {
        HTTPBody { (try (encoder ?? Self.encoder()).encode(object), .json) }
    }

    /// The fields of a form, in order: `a=1&b=x%20y`.
    public static func form(_ fields: HTTPQuery) -> HTTPBody { .data(Data(fields.encoded.utf8), .formURLEncoded) }

    /// The fields and files of a form.
    public static func multipart(_ multipart: HTTPMultipart) -> HTTPBody { HTTPBody { try multipart.encoded() } }

    /// Encodes the body.
    ///
    /// - Returns: The bytes, or their stream, and their media type.
    /// - Throws: ``HTTPError/PreparationFailure``.
    public func encoded() throws(HTTPError.PreparationFailure) -> (body: HTTPCall.Body, contentType: HTTPMediaType?) {
        do {
            return try self.encode()
        } catch let error as HTTPError.PreparationFailure {
            throw error
        } catch {
            throw .encoding(error)
        }
    }

    private static func encoder() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return encoder
    }
}
