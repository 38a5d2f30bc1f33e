// swift-tools-version: 6.3
import PackageDescription

/// Warnings are errors in CI only (`.ci/run`).
let warnings: [SwiftSetting] =
    Context.environment["MUX_WARNINGS_AS_ERRORS"] == nil ? [] : [.treatAllWarnings(as: .error)]

let settings: [SwiftSetting] =
    [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    ] + warnings

let package = Package(
    name: "MuxServer",
    platforms: [.macOS(.v15)],
    products: [.library(name: "MuxValkey", targets: ["MuxValkey"])],
    dependencies: [
        .package(name: "MuxKit", path: "../.."),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
    ],
    targets: [
        .target(
            name: "MuxValkey",
            dependencies: [
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOFoundationCompat", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            swiftSettings: settings
        ),
        // Real engines on loopback, for tests and disasters.
        .target(
            name: "Engines",
            dependencies: [
                "MuxValkey",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxValkeyTests",
            dependencies: [
                "MuxValkey", "Engines",
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
            ],
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
