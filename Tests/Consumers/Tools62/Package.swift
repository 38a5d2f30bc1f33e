// swift-tools-version: 6.2
import PackageDescription

let libraries: [Target.Dependency] =
    ["MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox"]
    .map { .product(name: $0, package: "MuxKit") }

/// The features of `SWIFT_APPROACHABLE_CONCURRENCY` and of the other settings of a new app project in Xcode
/// 26.
let app: [SwiftSetting] = [
    .defaultIsolation(MainActor.self),
    .enableUpcomingFeature("DisableOutwardActorInference"),
    .enableUpcomingFeature("GlobalActorIsolatedTypesUsability"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .enableUpcomingFeature("InferSendableFromCaptures"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let package = Package(
    name: "Tools62",
    platforms: [.macOS(.v15)],
    dependencies: [.package(path: "../MuxKit")],
    targets: [
        .testTarget(name: "Tools62Mode5", dependencies: libraries, swiftSettings: [.swiftLanguageMode(.v5)]),
        .testTarget(name: "Tools62Mode6", dependencies: libraries),
        .testTarget(name: "Tools62MainApp5", dependencies: libraries, swiftSettings: app + [.swiftLanguageMode(.v5)]),
    ]
)
