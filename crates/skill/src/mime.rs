//! The MIME type of a file by its name, where none was sent with it.

/// The MIME type of `SKILL.md`.
pub const MARKDOWN: &str = "text/markdown";

/// The length of the longest known extension.
const LONGEST: usize = 8;

/// The MIME type of a file: by the extension of its name, otherwise that of text or of bytes.
pub fn mime_type(path: &str, is_text: bool) -> &'static str {
    by_name(path).unwrap_or(if is_text { "text/plain" } else { "application/octet-stream" })
}

/// The MIME type of a file by the extension of its name; `None` if that says nothing. Allocates nothing, since whole
/// directories are typed by it.
pub fn by_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, extension) = name.rsplit_once('.')?;
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension.as_bytes());
    lower.make_ascii_lowercase();
    Some(match std::str::from_utf8(lower).ok()? {
        "md" | "markdown" => MARKDOWN,
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "ts" => "text/x-typescript",
        "py" => "text/x-python",
        "sh" | "bash" => "application/x-sh",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{by_name, mime_type};

    #[test]
    fn extension_in_any_case_decides_the_type() {
        for (path, expected) in [
            ("a/b.md", Some("text/markdown")),
            ("b.MarkDown", Some("text/markdown")),
            ("a.tar.GZ", Some("application/gzip")),
            ("a.woff2", Some("font/woff2")),
            ("a.b/md", None),
            ("md", None),
            ("a.", None),
            ("a.unknown", None),
            ("a.markdowns", None),
            ("a.m\u{e9}", None),
        ] {
            assert_eq!(by_name(path), expected, "{path}");
        }
        let untyped = [mime_type("a", true), mime_type("a", false), mime_type("a.md", false)];
        assert_eq!(untyped, ["text/plain", "application/octet-stream", "text/markdown"]);
    }
}
