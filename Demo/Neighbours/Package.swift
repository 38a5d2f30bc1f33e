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
    name: "MuxNeighbours",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        .library(name: "MuxGRDB", targets: ["MuxGRDB"]),
        .library(name: "MuxHTTPTypes", targets: ["MuxHTTPTypes"]),
    ],
    dependencies: [
        .package(name: "MuxKit", path: "../.."),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.5.0"),
    ],
    targets: [
        // A store of entries in an SQLite database.
        .target(
            name: "MuxGRDB",
            dependencies: [
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "GRDB", package: "GRDB.swift"),
            ],
            swiftSettings: settings
        ),
        // The store beside the journal: swift run -c release --package-path Demo/Neighbours store-benchmark
        .executableTarget(
            name: "store-benchmark",
            dependencies: ["MuxGRDB", .product(name: "MuxKit", package: "MuxKit")],
            path: "Sources/StoreBenchmark",
            swiftSettings: settings
        ),
        // Requests, responses and fields of swift-http-types.
        .target(
            name: "MuxHTTPTypes",
            dependencies: [
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: settings
        ),
        // A file to copy for clients of swift-openapi-generator, compiled against a stand-in of the runtime, because
        // tests resolve no further packages.
        .target(
            name: "MuxOpenAPI",
            dependencies: [
                "MuxHTTPTypes", "OpenAPIRuntime",
                .product(name: "MuxKit", package: "MuxKit"),
                .product(name: "MuxNetwork", package: "MuxKit"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            path: "Copy/OpenAPI",
            swiftSettings: settings
        ),
        .target(
            name: "OpenAPIRuntime",
            dependencies: [.product(name: "HTTPTypes", package: "swift-http-types")],
            path: "Tests/StandIns/OpenAPIRuntime",
            swiftSettings: settings
        ),
        // Files to copy for other client libraries, compiled against stand-ins.
        .target(
            name: "MuxClients",
            dependencies: [
                "Alamofire", "Moya", "Get", "Apollo", "ApolloAPI",
                .product(name: "MuxKit", package: "MuxKit"),
            ],
            path: "Copy/Clients",
            swiftSettings: settings
        ),
        .target(name: "Alamofire", path: "Tests/StandIns/Alamofire", swiftSettings: settings),
        .target(name: "Moya", path: "Tests/StandIns/Moya", swiftSettings: settings),
        .target(name: "Get", path: "Tests/StandIns/Get", swiftSettings: settings),
        .target(name: "ApolloAPI", path: "Tests/StandIns/ApolloAPI", swiftSettings: settings),
        .target(name: "Apollo", dependencies: ["ApolloAPI"], path: "Tests/StandIns/Apollo", swiftSettings: settings),
        .testTarget(
            name: "ClientTests",
            dependencies: [
                "MuxClients", "Alamofire", "Moya", "Get", "Apollo", "ApolloAPI",
                .product(name: "MuxTesting", package: "MuxKit"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "OpenAPITests",
            dependencies: [
                "MuxHTTPTypes", "MuxOpenAPI", "OpenAPIRuntime", .product(name: "MuxTesting", package: "MuxKit"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxGRDBTests",
            dependencies: [
                "MuxGRDB",
                .product(name: "MuxTesting", package: "MuxKit"),
                .product(name: "MuxConformance", package: "MuxKit"),
            ],
            swiftSettings: settings
        ),
        .testTarget(
            name: "MuxHTTPTypesTests",
            dependencies: [
                "MuxHTTPTypes",
                .product(name: "MuxTesting", package: "MuxKit"),
            ],
            swiftSettings: settings
        ),
        // Compiles and runs the samples of README.md.
        .testTarget(
            name: "ReadmeTests",
            dependencies: ["MuxGRDB", "MuxHTTPTypes", .product(name: "MuxTesting", package: "MuxKit")],
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
