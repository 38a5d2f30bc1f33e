import Foundation
import HTTPTypes
import Hummingbird
import MuxNetwork
import Synchronization

/// The rules of a shared cache of handlers, expressed as the rules of a private cache for a client.
///
/// The cache of `MuxNetwork` is a private cache, and follows redirections and the requests of a server to its
/// client. Therefore the cache gets other fields than the client of the handler: the handler's own values of
/// these fields are stored beside them, under names with a prefix, and are restored before the response is
/// sent.
struct SharedCacheRules {
    private let isPersonal: Bool
    private let method: String
    /// Whether the method of the request is safe (RFC 9110, section 9.2.1).
    let isSafe: Bool
    /// Whether the response may be stored.
    var mayStore = true

    /// - Parameter call: The call of ``call(for:isPersonal:)``.
    init(_ call: HTTPCall) {
        self.isPersonal = call.headers[Self.personal] != nil
        self.method = call.method
        self.isSafe = HTTPMethod(rawValue: call.method)?.isSafe ?? false
    }

    private static let prefix = "mux-original-"
    private static let replaced: [HTTPHeaders.Name] = [
        .cacheControl, .vary, .location, .retryAfter, "Clear-Site-Data",
    ]
    /// Marks personal requests, so that `Vary` separates their responses.
    private static let personal: HTTPHeaders.Name = "Mux-Personal"
    /// Marks a head that stands for the handler's own response or error.
    private static let standIn: HTTPHeaders.Name = "Mux-Stand-In"

    private static func original(_ name: HTTPHeaders.Name) -> HTTPHeaders.Name {
        .init(stringLiteral: self.prefix + name.canonical)
    }

    private static func isOwn(_ name: HTTPHeaders.Name) -> Bool {
        name == self.personal || name == self.standIn || name.canonical.hasPrefix(self.prefix)
    }

    // MARK: - Requests

    /// The call that describes a request to the cache.
    ///
    /// - Returns: `nil` for a request that the cache does not handle: OPTIONS, TRACE and CONNECT, another
    ///   safe request with a body, and a target that is not exactly the path and query
    ///   of a URL in normal form. Another spelling could reach another handler, and would have the same name
    ///   in the cache.
    static func call(for request: Request, isPersonal: Bool) -> HTTPCall? {
        guard let method = HTTPMethod(rawValue: request.method.rawValue),
            ![.options, .trace, .connect].contains(method), let target = request.head.path,
            let authority = request.head.authority, self.isNormal(target), !authority.contains(where: "/?#@\\".contains)
        else { return nil }
        let scheme = request.head.scheme == "https" ? "https" : "http"
        let text = "\(scheme)://\(authority)\(target)"
        guard let url = URL(string: text), url.absoluteString == text, !(url.host() ?? "").isEmpty else { return nil }
        let hasBody =
            request.headers.contains(.transferEncoding) || (request.headers[.contentLength] ?? "0") != "0"
        guard !hasBody || !method.isSafe else { return nil }
        // A handler has no time limit, and neither has a request that waits for the handler.
        let unlimited = Duration.seconds(24 * 60 * 60)
        var call = HTTPCall(method: method.rawValue, url: url, timeout: unlimited, deadline: unlimited)
        for field in HTTPHeaders(request.headers).fields
        where !HTTPHeaders.Name.framing.contains(field.name) && !self.isOwn(field.name) {
            call.headers.append(field.value, for: field.name)
        }
        if isPersonal {
            call.headers.append("1", for: self.personal)
            // The request shares no call of the handler with other users: a directive without another effect
            // (RFC 9111, section 5.2.1.3) requests an exchange of its own.
            call.headers.append("min-fresh=0", for: .cacheControl)
        }
        return call
    }

    /// Whether a target has no fragment, no dot segment, and no escape of an unreserved character: RFC 3986,
    /// section 6.2.2.
    private static func isNormal(_ target: String) -> Bool {
        guard target.hasPrefix("/"), !target.contains("#") else { return false }
        var rest = Substring(target).utf8
        while let percent = rest.firstIndex(of: UInt8(ascii: "%")) {
            rest = rest[percent...].dropFirst()
            guard let byte = UInt8(Substring(rest.prefix(2)), radix: 16) else { return false }
            switch byte {
            case 48...57, 65...90, 97...122, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"):
                return false
            default: break
            }
        }
        let path = target.prefix { $0 != "?" }
        return !path.split(separator: "/").contains { $0 == "." || $0 == ".." }
    }

    /// The request for the handler, with the conditions of the cache.
    ///
    /// A safe request has no body for the handler: a response that depends on the body would be stored for
    /// the URL, and a second call of the handler could not read the body again.
    func conditional(_ request: Request, _ headers: HTTPHeaders) -> Request {
        var head = request.head
        let conditions: [(HTTPField.Name, HTTPHeaders.Name)] = [
            (.ifNoneMatch, .ifNoneMatch), (.ifModifiedSince, .ifModifiedSince), (.range, .range), (.ifRange, .ifRange),
        ]
        for (field, name) in conditions where head.headerFields[field] != headers[name] {
            head.headerFields[field] = headers[name]
        }
        var conditional = Request(head: head, body: request.body)
        if self.isSafe { conditional.body = RequestBody(buffer: ByteBuffer()) }
        return conditional
    }

    // MARK: - Responses

    /// The head that stands for a response which the cache does not get.
    func standIn(_ status: Int, _ headers: HTTPHeaders) -> HTTPReply {
        var rules = self
        rules.mayStore = false
        var fields = rules.stored(status, headers)
        fields[.contentLength] = nil
        fields[Self.standIn] = "1"
        return HTTPReply(status: status, headers: fields)
    }

    static func standsForResult(_ reply: HTTPReply) -> Bool { reply.headers[self.standIn] != nil }

    /// The fields of a response for the private cache.
    func stored(_ status: Int, _ headers: HTTPHeaders) -> HTTPHeaders {
        var fields = HTTPHeaders([:])
        for field in headers.fields where !Self.isOwn(field.name) && field.name != "Transfer-Encoding" {
            fields.append(field.value, for: field.name)
        }
        for name in Self.replaced where name != .location || (300...399).contains(status) {
            if let value = fields[name] { Self.replace(name, by: "", in: &fields, original: value) }
        }
        let control = FieldList.elements(of: headers[.cacheControl] ?? "").map { String($0) }
        let directives = Set(control.map { Self.name(of: $0) })
        // A 304, or the response to HEAD, does not change stored fields that it lacks (RFC 9111, section 3.2).
        let isUpdate = status == 304 || self.method == "HEAD"
        let permitsSharing = directives.contains("public") || directives.contains("s-maxage")
        let isShared = permitsSharing || !self.isPersonal || (isUpdate && control.isEmpty)
        guard self.mayStore, !directives.contains("private"), isShared else {
            Self.replace(.cacheControl, by: Self.forbidding, in: &fields, original: headers[.cacheControl])
            return fields
        }
        let translated = Self.translated(control).joined(separator: ", ")
        Self.replace(.cacheControl, by: translated, in: &fields, original: headers[.cacheControl])
        if !isUpdate || headers[.vary] != nil {
            let names = [headers[.vary], permitsSharing ? nil : Self.personal.rawValue].compactMap(\.self)
            Self.replace(.vary, by: names.joined(separator: ", "), in: &fields, original: headers[.vary])
        }
        if self.needsTag(status, headers, directives) { fields[.eTag] = Self.newTag() }
        return fields
    }

    /// Whether a response gets an `ETag`.
    ///
    /// The response to GET gets one if the response is fresh, so that later requests can be answered with
    /// 304. The response to HEAD gets one, because without a validator it would describe any stored response
    /// (RFC 9111, section 4.3.5).
    private func needsTag(_ status: Int, _ headers: HTTPHeaders, _ directives: Set<String>) -> Bool {
        guard status == 200, headers[.eTag] == nil, headers[.lastModified] == nil else { return false }
        let hasLifetime = !directives.isDisjoint(with: ["max-age", "s-maxage"]) || headers[.expires] != nil
        let isFresh = hasLifetime && directives.isDisjoint(with: ["no-store", "no-cache"])
        return self.method == "HEAD" || (self.method == "GET" && isFresh)
    }

    /// Whether the private cache may store a response with these fields of ``stored(_:_:)``.
    static func mayBeStored(_ headers: HTTPHeaders) -> Bool {
        !FieldList.elements(of: headers[.cacheControl] ?? "").contains { self.name(of: String($0)) == "no-store" }
    }

    /// The fields of a response for the client.
    static func restored(_ headers: HTTPHeaders) -> HTTPHeaders {
        var fields = headers
        for name in self.replaced {
            if let value = fields[self.original(name)] {
                fields[name] = value
                fields[self.original(name)] = nil
            } else if fields[name] == self.forbidding || fields[name] == self.personal.rawValue {
                fields[name] = nil
            }
        }
        return fields
    }

    /// The value of `Cache-Control` of a response that must not be stored.
    private static let forbidding = "no-store, mux-forbidden"

    /// Replaces a field, and keeps the handler's value beside it.
    private static func replace(
        _ name: HTTPHeaders.Name,
        by value: String,
        in fields: inout HTTPHeaders,
        original: String?
    ) {
        fields[name] = value.isEmpty ? nil : value
        fields[self.original(name)] = original
    }

    /// The directives of a shared cache as directives of a private cache: RFC 9111, sections 5.2.2.8 and
    /// 5.2.2.10.
    private static func translated(_ control: [String]) -> [String] {
        var directives = control
        if let shared = control.first(where: { self.name(of: $0) == "s-maxage" }) {
            // RFC 9111, section 5.2.2.10: a shared cache validates a stale response, as with
            // proxy-revalidate.
            directives.removeAll { ["s-maxage", "max-age"].contains(self.name(of: $0)) }
            let seconds = shared.drop { $0 != "=" }
            directives.insert("max-age\(seconds.isEmpty ? "=0" : String(seconds))", at: 0)
            directives.append("must-revalidate")
        }
        if directives.contains(where: { self.name(of: $0) == "proxy-revalidate" }) {
            directives.append("must-revalidate")
        }
        return directives.filter { !["stale-while-revalidate", "proxy-revalidate"].contains(self.name(of: $0)) }
    }

    private static func name(of directive: String) -> String {
        FieldList.trimmed(directive.prefix { $0 != "=" }).lowercased()
    }

    // MARK: - Validators

    private static let process = UUID().uuidString.prefix(8).lowercased()
    private static let tagCount = Atomic(0)

    /// An `ETag` that no other response has.
    private static func newTag() -> String {
        "\"\(self.process)-\(self.tagCount.add(1, ordering: .relaxed).newValue)\""
    }

    /// Whether the client has the version of a response: RFC 9110, section 13.1.2.
    static func isNotModified(_ reply: HTTPReply, _ request: Request) -> Bool {
        guard reply.status == 200, request.method == .get || request.method == .head, let tag = reply.headers[.eTag],
            let condition = request.headers[.ifNoneMatch]
        else { return false }
        func opaque(_ tag: Substring) -> Substring { tag.hasPrefix("W/") ? tag.dropFirst(2) : tag }
        return FieldList.elements(of: condition).contains { $0 == "*" || opaque($0) == opaque(Substring(tag)) }
    }
}
