// swift-tools-version: 6.2
import PackageDescription

/// Warnings are errors in CI only (`.ci/run`): an app that depends on this package by path builds in spite of one.
let warnings: [SwiftSetting] =
    Context.environment["MUX_WARNINGS_AS_ERRORS"] == nil
    ? [] : [.treatAllWarnings(as: .error), .treatWarning("ExplicitSendable", as: .error)]

let settings: [SwiftSetting] =
    [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .enableUpcomingFeature("InferIsolatedConformances"),
    ] + warnings

// What an app's privacy report says of a library is a bundle, which only Apple's tools read; elsewhere it would cost one for nothing.
#if os(macOS)
let privacyManifest: [Resource] = [.copy("PrivacyInfo.xcprivacy")]
let unread: [String] = []
#else
let privacyManifest: [Resource] = []
let unread = ["PrivacyInfo.xcprivacy"]
#endif

/// Where the library is optimised, its tests need not be (`.ci/run`): optimising them takes longer than everything else.
let testSettings: [SwiftSetting] =
    Context.environment["MUX_UNOPTIMISED_TESTS"] == nil
    ? settings
    : settings + [
        .unsafeFlags(["-Onone", "-no-whole-module-optimization", "-enable-batch-mode"], .when(configuration: .release))
    ]

/// The inner loop builds one folder of the tests, such as `MuxKitTests/Store`, and no programs (`.ci/quick`).
let folder = (Context.environment["MUX_FOLDER"] ?? "").split(separator: "/").map { String($0) }

let programs: [Target] =
    folder.isEmpty
    ? [("demo", "CLI"), ("benchmarks", "Benchmarks")].map { name, path in
        .executableTarget(
            name: name,
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting", "MuxOutbox"] + [
                name == "demo" ? "MuxUI" : "MuxTestFleet"
            ],
            path: "Demo/\(path)",
            resources: name == "demo" ? [.copy("Resources")] : [],
            swiftSettings: settings
        )
    } : []

let testFolders = [
    "MuxKitTests", "MuxNetworkTests", "MuxTestingTests", "MuxUITests", "MuxOutboxTests", "DocumentationTests",
]

let tests: [Target] =
    testFolders
    .filter { folder.isEmpty || $0 == folder[0] }
    .map { name in
        .testTarget(
            name: name,
            dependencies: [
                "MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox",
                "MuxTestSupport", "MuxTestFleet", "MuxTestNeighbours",
            ],
            sources: folder.count > 1 ? ["Support", folder[1]] : nil,
            resources: name == "MuxKitTests" ? [.copy("Corpus")] : [],
            swiftSettings: testSettings
        )
    }

let package = Package(
    name: "MuxKit",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        .library(name: "MuxKit", targets: ["MuxKit"]),
        .library(name: "MuxNetwork", targets: ["MuxNetwork"]),
        .library(name: "MuxTesting", targets: ["MuxTesting"]),
        .library(name: "MuxConformance", targets: ["MuxConformance"]),
        .library(name: "MuxCompatibility", targets: ["MuxCompatibility"]),
        .library(name: "MuxUI", targets: ["MuxUI"]),
        .library(name: "MuxOutbox", targets: ["MuxOutbox"]),
    ],
    targets: [
        .target(
            name: "MuxKit",
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings + [.strictMemorySafety()]
        ),
        // libcurl, and the libraries of content codings, opened at run time. Both targets are empty on Apple's platforms.
        .target(name: "CMuxCurl"),
        .target(name: "CMuxDecoder"),
        .target(
            name: "MuxNetwork",
            dependencies: ["MuxKit", "CMuxCurl", "CMuxDecoder"],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        .target(
            name: "MuxTesting",
            dependencies: ["MuxKit", "MuxNetwork"],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        // The suites for authors of stores, leases and transports: an app's tests need MuxTesting only.
        .target(
            name: "MuxConformance",
            dependencies: ["MuxKit", "MuxNetwork", "MuxTesting"],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        // Names of older systems: a name in MuxKit would be ambiguous next to the same name of another package.
        .target(
            name: "MuxCompatibility",
            dependencies: ["MuxKit", "MuxNetwork"],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        // Offline writes. A separate target: an app without offline writes pays nothing.
        .target(
            name: "MuxOutbox",
            dependencies: ["MuxKit"],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        // Values for views. A separate target: services do not need Observation. Only the views need MuxNetwork.
        .target(
            name: "MuxUI",
            dependencies: [
                "MuxKit", "MuxOutbox",
                .target(
                    name: "MuxNetwork",
                    condition: .when(platforms: [.macOS, .macCatalyst, .iOS, .tvOS, .watchOS, .visionOS])
                ),
            ],
            exclude: unread,
            resources: privacyManifest,
            swiftSettings: settings
        ),
        // What tests of several targets use. No product depends on it: it imports Testing.
        .target(
            name: "MuxTestSupport",
            dependencies: ["MuxKit", "MuxTesting"],
            path: "Tests/Support",
            swiftSettings: settings
        ),
        // A simulation for a test and a benchmark; the benchmark must not import Testing.
        .target(
            name: "MuxTestFleet",
            dependencies: ["MuxKit", "MuxTesting"],
            path: "Tests/Fleet",
            swiftSettings: settings
        ),
        // Names of other packages, which no library of this package takes.
        .target(name: "MuxTestNeighbours", path: "Tests/Neighbours", swiftSettings: settings),
    ] + programs + tests,
    swiftLanguageModes: [.v6]
)
