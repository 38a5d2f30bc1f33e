// swift-tools-version: 5.9
import PackageDescription

let libraries: [Target.Dependency] =
    ["MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox"]
    .map { .product(name: $0, package: "MuxKit") }

let package = Package(
    name: "Tools59",
    platforms: [.macOS("15.0")],
    dependencies: [.package(path: "../MuxKit")],
    targets: [
        .testTarget(name: "Tools59Mode5", dependencies: libraries),
        .testTarget(
            name: "Tools59Mode6",
            dependencies: libraries,
            swiftSettings: [.unsafeFlags(["-swift-version", "6"])]
        ),
    ]
)
