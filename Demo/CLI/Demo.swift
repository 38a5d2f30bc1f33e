import Foundation

/// Plays the main job of the library end to end, over real HTTP on loopback, and says whether it went as promised.
@main
struct Demo {
    static let help = """
        swift run demo          plays the acts; exits non-zero if one of them fails
        swift run demo help     prints this

        A backend on loopback (sign-in, rotating refresh tokens, short-lived access tokens, places of the world) and an
        app that uses MuxKit as its README shows. For each act: what the app asked for, who served it, what the server
        saw, and whether that is what the library promises.

        Places: GeoNames (https://www.geonames.org), CC BY 4.0.
        """

    static func main() async throws {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch arguments.first {
        case nil:
            let failures = try await self.play()
            exit(failures == 0 ? 0 : 1)
        case Relaunch.argument:
            try await Relaunch.play(Array(arguments.dropFirst()))
        case KilledSave.argument:
            guard arguments.count == 3, let count = Int(arguments[2]) else { exit(2) }
            try await KilledSave.play(arguments[1], afterSaves: count)
        case "help", "--help", "-h":
            print(self.help)
        case let unknown?:
            print("demo: there is no '\(unknown)'\n\n\(self.help)")
            exit(2)
        }
    }

    /// Plays all acts; returns how many failed.
    private static func play() async throws -> Int {
        let stage = try Stage()
        let clock = ContinuousClock()
        let start = clock.now
        print(Act.header)
        var failures = 0
        let acts = Acts.all + CacheActs.all + MediaActs.all
        for play in acts {
            let act = await play(stage)
            print(act.text)
            if !act.holds { failures += 1 }
        }
        await stage.close()
        let elapsed = start.duration(to: clock.now)
        print(
            failures == 0
                ? "\nAll \(acts.count) acts went as promised, in \(elapsed)."
                : "\n\(failures) acts FAILED."
        )
        return failures
    }
}
