/// URLs without a usable file path.
package enum UnusableURLs {
    package static let texts = [
        "file:///srv/caf%E9", "file:///srv/%C0%AFx", "https://host", "https://host/srv/x", "file:", "file://",
        "file:///",
        "file:///srv/..", "file:relative/x", "relative/x", "/srv/x", "file:///srv/a%2Fb", "file:///srv/a%2fb",
        "file:///srv/a%00b", "file://host/srv/x", "file://me@localhost/srv/x", "file://localhost:80/srv/x",
        "file:///srv/a?b", "file:///srv/a#b", "data:,x",
    ]
}
