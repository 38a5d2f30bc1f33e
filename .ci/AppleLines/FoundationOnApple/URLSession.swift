// swift-format-ignore-file
// The used part of the URL loading system, which is in Foundation on Apple's platforms.
public import Foundation

open class URLCache: NSObject, @unchecked Sendable {}
open class HTTPCookieStorage: NSObject, @unchecked Sendable {}
open class URLCredentialStorage: NSObject, @unchecked Sendable {}
open class URLCredential: NSObject, @unchecked Sendable {}
open class HTTPCookie: NSObject, @unchecked Sendable {
    public enum AcceptPolicy: UInt, Sendable { case always, never, onlyFromMainDocumentDomain }
}

public struct URLRequest: Hashable, Sendable {
    public typealias CachePolicy = NSURLRequest.CachePolicy
    public init(url: URL, cachePolicy: CachePolicy = .useProtocolCachePolicy, timeoutInterval: TimeInterval = 60.0) {
        fatalError()
    }
    public var url: URL?
    public var httpMethod: String?
    public var httpBody: Data?
    public mutating func setValue(_ value: String?, forHTTPHeaderField field: String) { fatalError() }
}

open class NSURLRequest: NSObject, @unchecked Sendable {
    public enum CachePolicy: UInt, Sendable { case useProtocolCachePolicy, reloadIgnoringLocalCacheData }
}

open class URLResponse: NSObject, @unchecked Sendable {
    open var url: URL? { fatalError() }
}

open class HTTPURLResponse: URLResponse, @unchecked Sendable {
    open var statusCode: Int { fatalError() }
    open var allHeaderFields: [AnyHashable: Any] { fatalError() }
}

public let NSURLAuthenticationMethodClientCertificate = "NSURLAuthenticationMethodClientCertificate"

open class URLProtectionSpace: NSObject, @unchecked Sendable {
    open var authenticationMethod: String { fatalError() }
}

open class URLAuthenticationChallenge: NSObject, @unchecked Sendable {
    open var protectionSpace: URLProtectionSpace { fatalError() }
    open var failureResponse: URLResponse? { fatalError() }
}

open class URLSessionConfiguration: NSObject, @unchecked Sendable {
    open class var ephemeral: URLSessionConfiguration { fatalError() }
    open var requestCachePolicy: NSURLRequest.CachePolicy = .useProtocolCachePolicy
    open var connectionProxyDictionary: [AnyHashable: Any]?
    open var httpShouldSetCookies = true
    open var httpCookieAcceptPolicy: HTTPCookie.AcceptPolicy = .always
    open var httpMaximumConnectionsPerHost = 6
    open var httpCookieStorage: HTTPCookieStorage?
    open var urlCredentialStorage: URLCredentialStorage?
    open var urlCache: URLCache?
}

open class URLSessionTask: NSObject, @unchecked Sendable {
    open var taskIdentifier: Int { fatalError() }
    open var originalRequest: URLRequest? { fatalError() }
    open var countOfBytesSent: Int64 { fatalError() }
    open func cancel() { fatalError() }
    open func suspend() { fatalError() }
    open func resume() { fatalError() }
}

open class URLSessionDataTask: URLSessionTask, @unchecked Sendable {}
open class URLSessionUploadTask: URLSessionDataTask, @unchecked Sendable {}

open class URLSession: NSObject, @unchecked Sendable {
    public enum AuthChallengeDisposition: Int, Sendable {
        case useCredential, performDefaultHandling, cancelAuthenticationChallenge, rejectProtectionSpace
    }
    public enum ResponseDisposition: Int, Sendable { case cancel, allow, becomeDownload, becomeStream }

    public init(
        configuration: URLSessionConfiguration, delegate: (any URLSessionDelegate)?,
        delegateQueue queue: OperationQueue?
    ) { fatalError() }
    open var delegateQueue: OperationQueue { fatalError() }
    open var configuration: URLSessionConfiguration { fatalError() }
    open func finishTasksAndInvalidate() { fatalError() }
    open func dataTask(with request: URLRequest) -> URLSessionDataTask { fatalError() }
    open func uploadTask(with request: URLRequest, fromFile fileURL: URL) -> URLSessionUploadTask { fatalError() }
}

// Apple's requirements are optional. These requirements are not, so that a method without a match is an error.

public protocol URLSessionDelegate: NSObjectProtocol, Sendable {}

public protocol URLSessionTaskDelegate: URLSessionDelegate {
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void)
    func urlSession(
        _ session: URLSession, task: URLSessionTask, didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void)
    func urlSession(
        _ session: URLSession, task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void)
    func urlSession(
        _ session: URLSession, task: URLSessionTask, didSendBodyData bytesSent: Int64, totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64)
    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?)
}

public protocol URLSessionDataDelegate: URLSessionTaskDelegate {
    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void)
    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data)
}
