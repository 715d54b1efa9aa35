//! Settings that are refused.

use super::*;

#[test]
fn refused_settings_name_the_member_and_tell_no_secret() {
    let base = "http://api.test";
    let long: Map<_, _> = (0..65).map(|n| (format!("x-{n}"), json!("v"))).collect();
    let cases = [
        (json!({}), json!({}), "settings is invalid: missing field `baseUrl`"),
        (
            json!({"baseUrl": "api.test"}),
            json!({}),
            "settings.baseUrl must be a URL such as https://api.example.com/v1",
        ),
        (
            json!({"baseUrl": "http://"}),
            json!({}),
            "settings.baseUrl must be a URL such as https://api.example.com/v1",
        ),
        (
            json!({"baseUrl": "http://1.2.3.4.5"}),
            json!({}),
            "settings.baseUrl must be a URL such as https://api.example.com/v1",
        ),
        (
            json!({"baseUrl": "http://[fe80::1%25eth0]"}),
            json!({}),
            "settings.baseUrl must be a URL such as https://api.example.com/v1",
        ),
        (
            json!({"baseUrl": "file:///etc"}),
            json!({}),
            "settings.baseUrl must begin with http:// or https://",
        ),
        (
            json!({"baseUrl": "http://user@api.test"}),
            json!({}),
            "settings.baseUrl must not have a user or a password: send them as a secret header",
        ),
        (
            json!({"baseUrl": "http://:password@api.test"}),
            json!({}),
            "settings.baseUrl must not have a user or a password: send them as a secret header",
        ),
        (
            json!({"baseUrl": "http://api.test?key=1"}),
            json!({}),
            "settings.baseUrl must not have a query or a fragment",
        ),
        (
            json!({"baseUrl": base, "proxy": "x"}),
            json!({}),
            "settings has an unknown field `proxy`, expected one of `baseUrl`, `headers`, `allowNetworks`, \
             `allowRedirects`, `ca`",
        ),
        (
            json!({"baseUrl": base, "headers": {"Host": "evil.test"}}),
            json!({}),
            "settings.headers has `Host`, which the client sets itself",
        ),
        (
            json!({"baseUrl": base, "headers": {"Proxy-Authorization": "x"}}),
            json!({}),
            "settings.headers has `Proxy-Authorization`, which the client sets itself",
        ),
        (
            json!({"baseUrl": base, "headers": {"a b": "x"}}),
            json!({}),
            "settings.headers has `a b`, which is not a name of a header",
        ),
        (
            json!({"baseUrl": base}),
            json!({"headers": {"X-Key": "top\r\nsecret: x"}}),
            "secrets.headers has `X-Key`, whose value is not one of a header",
        ),
        (
            json!({"baseUrl": base}),
            json!({"headers": {"X-Key": 4711}}),
            "secrets must be an object with `headers`, an object of texts",
        ),
        (json!({"baseUrl": base, "headers": long}), json!({}), "settings.headers has more than 64 headers"),
        (
            json!({"baseUrl": base, "allowRedirects": ["https://cdn.test/"]}),
            json!({}),
            "settings.allowRedirects must have hosts such as cdn.example.com or cdn.example.com:8443",
        ),
        (
            json!({"baseUrl": base, "allowRedirects": ["cdn.test:x"]}),
            json!({}),
            "settings.allowRedirects must have hosts such as cdn.example.com or cdn.example.com:8443",
        ),
        (json!({"baseUrl": base, "ca": "x"}), json!({}), "settings.ca must have certificates in PEM"),
    ];
    for (settings, secrets, expected) in cases {
        let refused = connect(Kind::Http, &settings, secrets.as_object().unwrap(), &server::context());
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
}
