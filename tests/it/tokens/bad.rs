//! Invalid tokens, each for a different reason, with one answer for all.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Fixture, endpoint, now};
use crate::support::answers::{error, exact};
use crate::support::signer::{Signer, encode};

/// Tokens with a wrong claim.
fn wrong_claims(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let own = endpoint("a");
    let changes = [
        ("another issuer", json!({"iss": "https://evil.example"})),
        ("the issuer with a slash", json!({"iss": format!("{}/", fixture.issuer.url())})),
        ("the issuer in a list", json!({"iss": [fixture.issuer.url()]})),
        ("no issuer", json!({"iss": null})),
        ("no subject", json!({"sub": null})),
        ("an empty subject", json!({"sub": ""})),
        ("a subject that is a number", json!({"sub": 7})),
        ("a subject without end", json!({"sub": "s".repeat(256)})),
        ("no audience", json!({"aud": null})),
        ("no audience in the list", json!({"aud": []})),
        ("the audience of another agent", json!({"aud": endpoint("b")})),
        ("the audience of another gateway", json!({"aud": "https://other.example/a/mcp"})),
        ("the gateway as audience", json!({"aud": super::PUBLIC_URL})),
        ("the name of the agent as audience", json!({"aud": "a"})),
        ("an audience with a slash", json!({"aud": format!("{own}/")})),
        ("an audience in capitals", json!({"aud": own.to_uppercase()})),
        ("an audience that goes on", json!({"aud": format!("{own}?x")})),
        ("a list of audiences with a number", json!({"aud": [own, 7]})),
        ("no end", json!({"exp": null})),
        ("an end in the past", json!({"exp": now() - 6})),
        ("an end that is text", json!({"exp": (now() + 600).to_string()})),
        ("an end beyond all time", json!({"exp": 1e300})),
        ("an end before time", json!({"exp": -1})),
        ("not valid yet", json!({"nbf": now() + 60})),
        ("valid from a text on", json!({"nbf": "now"})),
        ("issued in the future", json!({"iat": now() + 60})),
    ];
    changes.into_iter().map(|(name, change)| (name, fixture.token(change))).collect()
}

/// Tokens with a wrong header, whatever the signature.
fn wrong_headers(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let evil = Signer::new("evil", "ES256");
    let claims = fixture.claims();
    let good = json!({"alg": "ES256", "kid": "k1"});
    let header = |change: Value| super::with(good.clone(), change);
    let sign = |signer: &Signer, change: Value| signer.sign(&header(change), &claims);
    let own = |change| sign(&fixture.signer, change);
    vec![
        ("an unpublished key", evil.token(&claims)),
        ("an unpublished key under a known key id", sign(&evil, json!({}))),
        ("an unknown name of a key", own(json!({"kid": "k2"}))),
        ("a name of a key that is a number", own(json!({"kid": 1}))),
        ("a path as the name of a key", own(json!({"kid": "../../../../dev/null"}))),
        ("an injection as the name of a key", own(json!({"kid": "k1' or '1'='1"}))),
        ("a key in the header", sign(&evil, json!({"kid": "evil", "jwk": evil.jwk()}))),
        ("a key set elsewhere", sign(&evil, json!({"kid": "evil", "jku": "https://evil.example/keys"}))),
        ("a certificate elsewhere", sign(&evil, json!({"kid": "evil", "x5u": "https://evil.example/c.pem"}))),
        ("a certificate in the header", sign(&evil, json!({"x5c": ["MIIB"]}))),
        ("no algorithm", own(json!({"alg": null}))),
        ("the algorithm none", own(json!({"alg": "none"}))),
        ("the algorithm None", own(json!({"alg": "NonE"}))),
        ("another algorithm of the family", own(json!({"alg": "ES384"}))),
        ("another family", own(json!({"alg": "RS256"}))),
        ("an algorithm in small letters", own(json!({"alg": "es256"}))),
        ("a critical extension", own(json!({"crit": ["exp"]}))),
        ("no critical extension, critically", own(json!({"crit": []}))),
        ("a token of another type", own(json!({"typ": "logout+jwt"}))),
        ("a type that is a number", own(json!({"typ": 1}))),
        (
            "a member twice",
            fixture.signer.sign_text(r#"{"alg":"none","alg":"ES256","kid":"k1"}"#, &claims.to_string()),
        ),
        ("the secret of HMAC", confused(fixture, "HS256")),
        ("no signature at all", unsigned(r#"{"alg":"none"}"#, &claims)),
        ("no signature under a good header", unsigned(&good.to_string(), &claims)),
    ]
}

/// A token signed with the public key as the secret of a symmetric algorithm.
fn confused(fixture: &Fixture, algorithm: &str) -> String {
    let header = json!({"alg": algorithm, "kid": "k1"}).to_string();
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(fixture.claims().to_string().as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(&fixture.signer.public_bytes()).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
}

fn unsigned(header: &str, claims: &Value) -> String {
    format!("{}.{}.", encode(header.as_bytes()), encode(claims.to_string().as_bytes()))
}

/// Malformed tokens.
fn wrong_forms(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let good = fixture.token(json!({}));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let other = fixture.signer.token(&fixture.claims_with(json!({"sub": "mallory"})));
    let other_claims = other.split('.').nth(1).unwrap();
    let giant = fixture.token(json!({"padding": "x".repeat(20_000)}));
    let sign = |header: &str, claims: &str| fixture.signer.sign_text(header, claims);
    let head = r#"{"alg":"ES256","kid":"k1"}"#;
    vec![
        ("a giant", giant),
        ("cut short", good[..good.len() - 1].to_owned()),
        ("cut in the middle", good[..good.len() / 2].to_owned()),
        ("no signature", format!("{signed}.")),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{good}.x")),
        ("five parts, as what is encrypted has", format!("{good}.x.y")),
        ("the claims of another", format!("{header}.{other_claims}.{signature}")),
        ("padding", format!("{signed}.{signature}==")),
        ("no header", format!(".{claims}.{signature}")),
        ("no claims", format!("{header}..{signature}")),
        ("dots alone", "..".to_owned()),
        ("claims that are no object", sign(head, "[]")),
        ("claims that are no JSON", sign(head, "{")),
        ("claims that nest deep", sign(head, &"[".repeat(5_000))),
        ("a header that is no object", sign("\"ES256\"", &fixture.claims().to_string())),
        ("a signature in ASN.1", format!("{signed}.{}", encode(&[0x30, 0x06, 2, 1, 1, 2, 1, 1]))),
        ("a signature of zeros", format!("{signed}.{}", encode(&[0; 64]))),
    ]
}

#[tokio::test]
async fn invalid_tokens_are_answered_alike() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.status("a", &fixture.token(json!({}))).await, 200);
    let mut expected = error(401, "7", -31010, "unauthenticated", "a valid credential is required");
    expected["headers"]["www-authenticate"] = json!(
        "Bearer realm=\"MCP\", resource_metadata=\
         \"https://mcp.example.com/.well-known/oauth-protected-resource/a/mcp\", scope=\"mcp\", \
         error=\"invalid_token\""
    );
    let bad = [wrong_claims(&fixture), wrong_headers(&fixture), wrong_forms(&fixture)].concat();
    assert!(bad.len() >= 60, "{}", bad.len());
    for (name, token) in bad {
        assert_eq!(exact(&fixture.ping("a", &token).await), expected, "{name}");
    }
    // Nor does the answer reveal whether the agent exists.
    let token = fixture.token(json!({"aud": endpoint("absent"), "exp": 0}));
    let refused = exact(&fixture.ping("absent", &token).await);
    assert_eq!(refused["status"], 401);
    assert_eq!(refused["body"], expected["body"]);
}

#[tokio::test]
async fn invalid_token_is_refused_at_a_public_agent() {
    let fixture = Fixture::new().await;
    fixture.replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    assert_eq!(fixture.status("a", &fixture.token(json!({"exp": 0}))).await, 401);
    let foreign = fixture.token(json!({"waggle_tenant": "bee"}));
    assert_eq!(fixture.status("a", &foreign).await, 200, "a foreign one reads it like an anonymous caller");
}

#[tokio::test]
async fn disallowed_algorithm_is_refused_for_a_known_key() {
    let fixture = Fixture::entry(json!({"algorithms": ["RS256", "EdDSA"]})).await;
    assert_eq!(fixture.status("a", &fixture.token(json!({}))).await, 401);
}

#[tokio::test]
async fn tokens_are_refused_without_a_configured_issuer() {
    let (_database, replica) = crate::support::app::gateway().await;
    replica.acme("a").await;
    let signer = Signer::new("k1", "ES256");
    let token = signer.token(&super::claims_for("https://login.example.com", "a"));
    let refused = exact(&super::ping(&replica, "a", &token).await);
    assert_eq!(refused, error(401, "7", -31010, "unauthenticated", "a valid credential is required"));
}
