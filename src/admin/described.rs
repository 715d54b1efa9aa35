//! Objects that documents describe, checked before any is sent: the names and the types of their members, which are those of
//! the calls that create them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::agents;
use super::connection_body::NewConnection;
use super::malformed;
use super::tenants::NewTenant;

/// Checks the body of a `POST` to the path of a list: of tenants, agents, or connections, apart from their secrets, for which
/// documents have references.
///
/// # Errors
/// The first member that is wrong.
pub fn check_body(path: &str, mut body: Map<String, Value>) -> Result<(), String> {
    match path {
        "/tenants" => parse::<NewTenant>(body),
        "/agents" => parse::<agents::Create>(body),
        _ => {
            body.remove("secrets");
            parse::<NewConnection>(body)
        }
    }
}

fn parse<T: DeserializeOwned>(body: Map<String, Value>) -> Result<(), String> {
    let parsed = serde_path_to_error::deserialize::<_, T>(Value::Object(body));
    parsed
        .map(drop)
        .map_err(|found| malformed::message(&found.path().to_string(), &found.inner().to_string()))
}
