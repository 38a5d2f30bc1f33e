// swift-tools-version: 6.0
import PackageDescription

let libraries: [Target.Dependency] =
    ["MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox"]
    .map { .product(name: $0, package: "MuxKit") }

let package = Package(
    name: "Tools60",
    platforms: [.macOS(.v15)],
    dependencies: [.package(path: "../MuxKit")],
    targets: [
        .testTarget(name: "Tools60Mode5", dependencies: libraries, swiftSettings: [.swiftLanguageMode(.v5)]),
        .testTarget(name: "Tools60Mode6", dependencies: libraries),
    ]
)
