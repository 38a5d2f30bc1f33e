// swift-format-ignore-file

public class CGImage {
    init() {}
}

extension CGImage {
    public var width: Int { fatalError() }
    public var height: Int { fatalError() }
    public var bytesPerRow: Int { fatalError() }
}
