// swift-format-ignore-file
public import Dispatch

public struct NWPath: Equatable, Sendable {
    public enum Status: Sendable { case satisfied, unsatisfied, requiresConnection }
    public let status: Status
}

final public class NWPathMonitor {
    public init() { fatalError() }
    @preconcurrency final public var pathUpdateHandler: (@Sendable (NWPath) -> Void)?
    final public func start(queue: DispatchQueue) { fatalError() }
    final public func cancel() { fatalError() }
}
