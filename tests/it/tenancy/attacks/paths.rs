//! Attacks with paths, and with headers that name another agent.

use super::{SECRET, read, rivals, text_of};

#[tokio::test(flavor = "multi_thread")]
async fn no_path_spelling_reaches_a_foreign_agent() {
    let rivals = rivals().await;
    let address = rivals.replica.running.address;
    let spellings = [
        "/b/mcp",
        "/b/mcp/",
        "/b/mcp//",
        "//b/mcp",
        "/./b/mcp",
        "/b/./mcp",
        "/b//mcp",
        "/B/mcp",
        "/b./mcp",
        "/b;/mcp",
        "/a/mcp/../../b/mcp",
        "/a/../b/mcp",
        "/b/mcp/../mcp",
        "/a/mcp/..;/..;/b/mcp",
        "/a/..%2fb/mcp",
        "/a%2f..%2fb/mcp",
        "/a/mcp%2f..%2f..%2fb%2fmcp",
        "/a/mcp/%2e%2e/%2e%2e/b/mcp",
        "/a\\..\\b\\mcp",
        "/%62/mcp",
        "/%2562/mcp",
        "/b%2fmcp",
        "/b%2Fmcp",
        "/b%00/mcp",
        "/b%00a/mcp",
        "/b%20/mcp",
        "/b%0d%0a/mcp",
        "/b/%6dcp",
        "/b/MCP",
        "/b/mcp%20",
        "/b/mcp%00",
        "/%c0%62/mcp",
        "/%ef%bd%82/mcp",
        "/%d0%b2/mcp",
        "/b%cc%81/mcp",
        "/b%e2%80%8b/mcp",
        "/a,b/mcp",
        "/a&b/mcp",
        "/a|b/mcp",
        "/b/mcp?agent=a",
        "/a/mcp?/b/mcp",
        "/b/mcp#/a/mcp",
        "/admin/../b/mcp",
        "/healthz/../b/mcp",
        "*",
        "b/mcp",
    ];
    let absolute = [format!("http://{address}/b/mcp"), format!("http://{address}@{address}/b/mcp")];
    for spelling in spellings.into_iter().chain(absolute.iter().map(String::as_str)) {
        for key in [
            "",
            &format!("X-Agent-API-Key: {}\r\n", rivals.a),
            &format!("Authorization: Bearer {}\r\n", rivals.acme),
        ] {
            let (status, body) = rivals.raw("POST", spelling, key, &read().to_string()).await;
            assert!(
                [400, 401, 403, 404].contains(&status) || body.contains("acme's own"),
                "{spelling} {status} {body}"
            );
            assert!(!body.contains(SECRET), "{spelling} {status} {body}");
        }
    }
    assert_eq!(text_of(&rivals.replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_spelling_administers_a_foreign_agent() {
    let rivals = rivals().await;
    let spellings = [
        "/agents/b",
        "/agents/b/",
        "/agents//b",
        "/agents/B",
        "/agents/%62",
        "/agents/b%00",
        "/agents/b%20",
        "/agents/b.",
        "/agents/a/../b",
        "/agents/a%2f..%2fb",
        "/agents/a/..%2fb/resources?uri=x:1",
        "/agents/a/../b/resources?uri=x:1",
        "/agents/b%2fresources?uri=x:1",
        "/agents/%ff",
        "/agents/%ef%bd%82",
        "/agents/b;a",
        "/../v1/agents/b",
        "/agents/b/resources?uri=x:1",
        "/agents/b/resources?uri=x%3A1",
        "/agents/b/resources/content?uri=x:1",
        "/agents/a/resources?uri=x:1&agent=b",
        "/agents/a/resources?uri=../../b/resources?uri=x:1",
        "/agents?tenant=rival",
        "/agents?tenant=acme&tenant=rival",
        "/agents?tenant=rival%00",
        "/tenants/rival",
        "/tenants/acme/../rival",
        "/tenants/acme%2f..%2frival",
        "/agents?tenant=acme%2crival",
    ];
    let root = ["/admin/v1", "/ADMIN/v1", "/admin//v1", "/admin/V1", "/admin/v1/../v1", "/a/../admin/v1"];
    for target in root.iter().flat_map(|root| spellings.map(|spelling| format!("{root}{spelling}"))) {
        for key in [&rivals.acme, &rivals.a] {
            let key = format!("Authorization: Bearer {key}\r\n");
            for method in ["GET", "DELETE"] {
                let (status, body) = rivals.raw(method, &target, &key, "").await;
                assert!((400..500).contains(&status), "{method} {target} {status} {body}");
                assert!(!body.contains("rival"), "{method} {target} {status} {body}");
            }
        }
    }
    assert_eq!(text_of(&rivals.replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_header_overrides_the_agent_of_the_path() {
    let rivals = rivals().await;
    for header in [
        "X-Original-URL: /b/mcp",
        "X-Rewrite-URL: /b/mcp",
        "X-Forwarded-Path: /b/mcp",
        "X-Forwarded-Prefix: /b",
        "X-HTTP-Method-Override: DELETE",
        "X-Forwarded-For: 127.0.0.1",
        "X-Agent-Id: b",
        "Mcp-Name: x:1",
        "X-Tenant: rival",
        "Forwarded: for=127.0.0.1;host=rival",
        "Cookie: key=bak_x",
        "Mcp-Session-Id-Agent: b",
        "Via: 1.1 b",
    ] {
        let headers = format!("X-Agent-API-Key: {}\r\n{header}\r\n", rivals.a);
        let (status, body) = rivals.raw("POST", "/a/mcp", &headers, &read().to_string()).await;
        assert!(status == 200 && body.contains("acme's own"), "{header}: {status} {body}");
    }
}
