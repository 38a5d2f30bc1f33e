import Foundation

/// An authority and a certificate for 127.0.0.1, made by openssl in a folder that is removed with the object.
package final class Certificates: Sendable {
    private let folder: URL

    /// Makes the authority and the certificate.
    ///
    /// - Throws: The reason of a failure of openssl.
    package init() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "mux-certificates-\(UUID().uuidString)")
        self.folder = folder
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try Data("subjectAltName=IP:127.0.0.1\n".utf8).write(to: folder.appending(path: "names"))
        func run(_ line: String) throws {
            let process = Process()
            process.executableURL = URL(filePath: "/usr/bin/env")
            process.arguments = ["openssl"] + line.split(separator: " ").map { String($0) }
            process.currentDirectoryURL = folder
            process.standardOutput = FileHandle.nullDevice
            process.standardError = FileHandle.nullDevice
            try process.run()
            process.waitUntilExit()
            guard process.terminationStatus == 0 else { throw CocoaError(.fileWriteUnknown) }
        }
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        try run("req -x509 \(key) -keyout ca.key -out ca.pem -days 2 -subj /CN=authority")
        try run("req \(key) -keyout engine.key -out engine.csr -subj /CN=engine")
        try run(
            "x509 -req -in engine.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out engine.pem -days 2 -extfile names"
        )
    }

    deinit { try? FileManager.default.removeItem(at: self.folder) }

    /// The path of the authority's certificate.
    package var authority: String { self.folder.appending(path: "ca.pem").path }

    var arguments: [String] {
        [
            "--tls-cert-file", self.folder.appending(path: "engine.pem").path,
            "--tls-key-file", self.folder.appending(path: "engine.key").path,
            "--tls-ca-cert-file", self.authority, "--tls-auth-clients", "no",
        ]
    }
}
