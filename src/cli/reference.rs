//! Secrets in documents: references to environment variables, never the secrets themselves.

use serde_json::{Map, Value};

use super::output::Failure;
use crate::config::Environment;

/// The variable that a reference names.
fn variable(value: &Value) -> Option<&str> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    members.get("env")?.as_str()
}

/// Refuses everything but references, and `null`, which removes a secret.
pub(super) fn check(secrets: &Value) -> Result<(), String> {
    let members = secrets.as_object().ok_or("secrets: expected an object")?;
    members.iter().try_for_each(|(name, value)| check_one(&format!("secrets.{name}"), value, true))
}

fn check_one(place: &str, value: &Value, removable: bool) -> Result<(), String> {
    match value {
        Value::Null if removable => Ok(()),
        _ if variable(value).is_some() => Ok(()),
        Value::Object(members) if !members.is_empty() => {
            members.iter().try_for_each(|(name, value)| check_one(&format!("{place}.{name}"), value, false))
        }
        _ => Err(format!("{place}: expected {{\"env\": \"NAME\"}}, never the secret itself")),
    }
}

/// The secrets that references stand for. A variable may hold a JSON object where a secret is one.
pub(super) fn resolve(secrets: &Map<String, Value>, environment: &Environment) -> Result<Value, Failure> {
    let resolved = secrets.iter().map(|(name, value)| {
        let found = resolve_one(&format!("secrets.{name}"), value, environment)?;
        let object = found.as_str().and_then(|text| serde_json::from_str(text).ok()).filter(Value::is_object);
        Ok((name.clone(), object.unwrap_or(found)))
    });
    resolved.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn resolve_one(place: &str, value: &Value, environment: &Environment) -> Result<Value, Failure> {
    if let Some(name) = variable(value) {
        let missing = || Failure::Usage(format!("{place}: the environment variable {name} is not set"));
        return environment.secret(name).map(Value::from).ok_or_else(missing);
    }
    let Value::Object(members) = value else { return Ok(value.clone()) };
    let resolved = members.iter().map(|(name, value)| {
        Ok((name.clone(), resolve_one(&format!("{place}.{name}"), value, environment)?))
    });
    resolved.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_resolved_and_missing_variables_named() {
        let environment: Environment = [("TOKEN", "t"), ("HEADERS", r#"{"a":"b"}"#)].into_iter().collect();
        let secrets =
            json!({"x": {"authorization": {"env": "TOKEN"}}, "headers": {"env": "HEADERS"}, "old": null});
        let resolved = resolve(secrets.as_object().unwrap(), &environment).unwrap();
        assert_eq!(resolved, json!({"x": {"authorization": "t"}, "headers": {"a": "b"}, "old": null}));
        let missing = json!({"password": {"env": "GONE"}});
        let error = resolve(missing.as_object().unwrap(), &environment).unwrap_err().to_string();
        assert_eq!(error, "secrets.password: the environment variable GONE is not set");
    }

    #[test]
    fn secrets_themselves_are_refused() {
        for secrets in
            [json!({"a": "s"}), json!({"a": {"b": "s"}}), json!({"a": {}}), json!({"a": {"b": null}})]
        {
            let error = check(&secrets).unwrap_err();
            assert!(error.ends_with("expected {\"env\": \"NAME\"}, never the secret itself"), "{error}");
        }
        assert_eq!(check(&json!({"a": null, "b": {"c": {"env": "N"}}})), Ok(()));
    }
}
