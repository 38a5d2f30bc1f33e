// swift-tools-version: 6.2
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
    products: [
        .library(name: "MuxValkey", targets: ["MuxValkey"]),
        .library(name: "MuxServices", targets: ["MuxServices"]),
        .library(name: "MuxAsyncHTTPClient", targets: ["MuxAsyncHTTPClient"]),
        .library(name: "MuxHummingbird", targets: ["MuxHummingbird"]),
    ],
    dependencies: [
        .package(name: "MuxKit", path: "../.."),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0"),
    ],
    targets: [
        // The shared store over Valkey or Redis.
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
        // Logs, metrics, traces and the lifecycle of a service.
        .target(
            name: "MuxServices",
            dependencies: [
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "Tracing", package: "swift-distributed-tracing"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: settings
        ),
        // A transport over async-http-client.
        .target(
            name: "MuxAsyncHTTPClient",
            dependencies: [
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOFoundationCompat", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            swiftSettings: settings
        ),
        // A shared cache of the responses of Hummingbird's handlers.
        .target(
            name: "MuxHummingbird",
            dependencies: [
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOFoundationCompat", package: "swift-nio"),
            ],
            swiftSettings: settings
        ),
        // A server behind the cache, for the public tests of HTTP caches.
        .executableTarget(
            name: "cacheproxy",
            dependencies: [
                "MuxHummingbird",
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Sources/CacheProxy",
            swiftSettings: settings
        ),
        // A web service of places.
        .executableTarget(
            name: "places",
            dependencies: [
                "MuxValkey", "MuxServices",
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Places",
            resources: [.copy("Resources")],
            swiftSettings: settings
        ),
        // The page of `swift run demo fleet`, on a real engine. All files except one are links to files of
        // the demo.
        .executableTarget(
            name: "fleet",
            dependencies: [
                "MuxValkey", "Engines",
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Sources/Fleet",
            swiftSettings: settings
        ),
        // Many processes, a real engine, and their failures.
        .executableTarget(
            name: "disasters",
            dependencies: [
                "MuxValkey", "Engines",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            path: "Sources/Disasters",
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
        // A stand-in with the names of the official client, for the sample.
        .target(
            name: "Valkey",
            dependencies: ["MuxValkey", .product(name: "NIOCore", package: "swift-nio")],
            path: "Tests/ValkeyStandIn",
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxValkeyTests",
            dependencies: [
                "MuxValkey", "Engines", "Valkey",
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "MuxConformance", package: "MuxKit"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxHummingbirdTests",
            dependencies: [
                "MuxHummingbird",
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxServicesTests",
            dependencies: [
                "MuxServices", "MuxAsyncHTTPClient", "MuxValkey", "Engines", "places", "fleet",
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "MuxConformance", package: "MuxKit"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
                .product(name: "ServiceLifecycleTestKit", package: "swift-service-lifecycle"),
            ],
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
