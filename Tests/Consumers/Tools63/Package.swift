// swift-tools-version: 6.3
import PackageDescription

let libraries: [Target.Dependency] =
    ["MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox"]
    .map { .product(name: $0, package: "MuxKit") }

let features: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let main: SwiftSetting = .defaultIsolation(MainActor.self)

let package = Package(
    name: "Tools63",
    platforms: [.macOS(.v15)],
    dependencies: [.package(path: "../MuxKit")],
    targets: [
        .testTarget(name: "Tools63Mode5", dependencies: libraries, swiftSettings: [.swiftLanguageMode(.v5)]),
        // The settings of `swift package init`.
        .testTarget(name: "Tools63Mode6", dependencies: libraries),
        .testTarget(name: "Tools63Features6", dependencies: libraries, swiftSettings: features),
        .testTarget(name: "Tools63Main6", dependencies: libraries, swiftSettings: [main]),
        .testTarget(name: "Tools63MainFeatures6", dependencies: libraries, swiftSettings: features + [main]),
        // A program whose multiplexers are globals of its top-level code.
        .executableTarget(name: "Program", dependencies: libraries),
    ],
    swiftLanguageModes: [.v6]
)
