// swift-format-ignore-file
@_exported public import CoreGraphics
public import Foundation
public import FoundationOnApple

public class CGImageSource {
    init() {}
}

public func CGImageSourceCreateWithURL(_ url: CFURL, _ options: CFDictionary?) -> CGImageSource? { fatalError() }
public func CGImageSourceCreateImageAtIndex(
    _ isrc: CGImageSource, _ index: Int, _ options: CFDictionary?
) -> CGImage? { fatalError() }
