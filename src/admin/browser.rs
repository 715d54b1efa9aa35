//! The browser of the OpenAPI document: Swagger UI, served by this gateway alone.
//!
//! Its large files are compressed when the gateway is built (`build.rs`) and sent compressed: every browser accepts gzip.

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;

/// The path of the page; its files are below it.
const PAGE: &str = "/admin/docs";

/// Loads nothing from other origins. Swagger UI sets inline styles.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:";

/// Uncompressed files: name, media type, text.
const TEXTS: [(&str, &str, &str); 3] = [
    ("", "text/html", include_str!("browser/index.html")),
    ("initializer.js", "text/javascript", include_str!("browser/initializer.js")),
    ("page.css", "text/css", include_str!("browser/page.css")),
];

/// Compressed files: name, media type, gzip.
const COMPRESSED: [(&str, &str, &[u8]); 3] = [
    ("swagger-ui.css", "text/css", include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz"))),
    (
        "swagger-ui-bundle.js",
        "text/javascript",
        include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")),
    ),
    (
        "swagger-ui-standalone-preset.js",
        "text/javascript",
        include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-standalone-preset.js.gz")),
    ),
];

/// Serves the page and its files.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new().route(PAGE, get(async || Redirect::to("/admin/docs/")));
    for (name, media, text) in TEXTS {
        let headers = [(CONTENT_TYPE, media), (CONTENT_SECURITY_POLICY, POLICY)];
        router = router.route(&format!("{PAGE}/{name}"), get(async move || (headers, text)));
    }
    for (name, media, gzip) in COMPRESSED {
        let compressed = async move || {
            let mut response = ([(CONTENT_TYPE, media)], gzip).into_response();
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        };
        router = router.route(&format!("{PAGE}/{name}"), get(compressed));
    }
    router
}
