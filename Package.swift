// swift-tools-version: 6.3
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .treatAllWarnings(as: .error),
    .treatWarning("ExplicitSendable", as: .error),
]

let package = Package(
    name: "MuxKit",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        .library(name: "MuxKit", targets: ["MuxKit"]),
        .library(name: "MuxNetwork", targets: ["MuxNetwork"]),
        .library(name: "MuxTesting", targets: ["MuxTesting"]),
    ],
    targets: [
        .target(name: "MuxKit", swiftSettings: settings + [.strictMemorySafety()]),
        .target(name: "MuxNetwork", dependencies: ["MuxKit"], swiftSettings: settings),
        .target(name: "MuxTesting", dependencies: ["MuxKit", "MuxNetwork"], swiftSettings: settings),
        .executableTarget(
            name: "demo",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            path: "Demo/CLI",
            resources: [.copy("Resources")],
            swiftSettings: settings
        ),
        .executableTarget(
            name: "benchmarks",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            path: "Demo/Benchmarks",
            swiftSettings: settings
        ),
        .testTarget(name: "MuxKitTests", dependencies: ["MuxKit", "MuxTesting"], swiftSettings: settings),
        .testTarget(
            name: "MuxNetworkTests",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxTestingTests",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            swiftSettings: settings
        ),
        .testTarget(
            name: "DocumentationTests",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
