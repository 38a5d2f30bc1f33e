public import Foundation

/// The body of a request, with its media type.
///
/// ```swift
/// var body: HTTPBody? { .json(self.profile) }
/// var body: HTTPBody? { .form(["grant_type": "refresh_token", "refresh_token": self.token]) }
/// ```
///
/// The client encodes the body once for each call of the client. A retry sends the encoded bytes again, or
/// reads the stream again: a stream must return equal bytes each time.
public struct HTTPBody: Sendable {
    private let encode: @Sendable () throws -> (body: HTTPCall.Body, contentType: HTTPMediaType?)

    /// Makes a body that the client encodes when the client builds the request.
    ///
    /// - Parameter encode: Returns the bytes, which must be equal at every call, and the media type, or `nil`
    ///   for ``HTTPClient/Configuration/contentType``. Any error other than an
    ///   ``HTTPError/PreparationFailure`` becomes ``HTTPError/PreparationFailure/encoding(_:)``.
    public init(_ encode: @escaping @Sendable () throws -> (data: Data, contentType: HTTPMediaType?)) {
        self.encode = {
            let encoded = try encode()
            return (.data(encoded.data), encoded.contentType)
        }
    }

    /// Makes a body from a stream, so the entire body need not be in memory.
    ///
    /// A ``URLSessionTransport`` on Linux collects the pieces in memory.
    ///
    /// - Parameters:
    ///   - stream: The pieces, which are produced on demand.
    ///   - contentType: The media type; `nil` for ``HTTPClient/Configuration/contentType``.
    /// - Returns: The body.
    public static func stream(_ stream: HTTPCall.BodyStream, _ contentType: HTTPMediaType? = nil) -> HTTPBody {
        HTTPBody(stream: stream, contentType)
    }

    private init(stream: HTTPCall.BodyStream, _ contentType: HTTPMediaType?) {
        self.encode = { (.stream(stream), contentType) }
    }

    /// Makes a body from bytes.
    ///
    /// - Parameters:
    ///   - data: The bytes.
    ///   - contentType: The media type; `nil` for ``HTTPClient/Configuration/contentType``.
    /// - Returns: The body.
    public static func data(_ data: Data, _ contentType: HTTPMediaType? = nil) -> HTTPBody {
        HTTPBody { (data, contentType) }
    }

    /// Makes a body from text in UTF-8.
    public static func text(_ text: String) -> HTTPBody { .data(Data(text.utf8), .utf8Text) }

    /// Makes a body from a value in JSON.
    ///
    /// - Parameters:
    ///   - value: The value.
    ///   - encoder: Encodes the value; the default uses sorted keys, unescaped slashes, and ISO 8601 dates
    ///     without fractions of a second.
    /// - Returns: The body.
    public static func json(_ value: some Encodable & Sendable, encoder: JSONEncoder? = nil) -> HTTPBody {
        HTTPBody { (try (encoder ?? Self.encoder()).encode(value), .json) }
    }

    /// Makes a body from a JSON object with values of different types: `.json(["name": "x", "age": 5])`.
    public static func json(_ object: [String: JSONValue], encoder: JSONEncoder? = nil) -> HTTPBody {
        HTTPBody { (try (encoder ?? Self.encoder()).encode(object), .json) }
    }

    /// Makes a body from the fields of a form, in order: `a=1&b=x%20y`.
    public static func form(_ fields: HTTPQuery) -> HTTPBody { .data(Data(fields.encoded.utf8), .formURLEncoded) }

    /// Makes a body from the fields and files of a form.
    public static func multipart(_ multipart: HTTPMultipart) -> HTTPBody { HTTPBody { try multipart.encoded() } }

    /// Encodes the body.
    ///
    /// - Returns: The bytes or the stream, and the media type.
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

    package static func encoder() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return encoder
    }
}
