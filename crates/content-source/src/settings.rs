//! Reads the settings and secrets of a connection: JSON objects, whose unknown members are refused.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::SettingsError;

/// Reads `settings`.
pub(crate) fn read_settings<T: DeserializeOwned>(settings: &Value) -> Result<T, SettingsError> {
    if !settings.is_object() {
        return Err(SettingsError::new("settings", "must be an object"));
    }
    serde_path_to_error::deserialize(settings).map_err(|found| {
        let (path, error) = (found.path().to_string(), found.inner().to_string());
        // The message has the name of an unknown member, with which the path ends.
        if error.starts_with("unknown field") {
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            return SettingsError::new(member("settings", parent), format!("has an {error}"));
        }
        SettingsError::new(member("settings", &path), format!("is invalid: {error}"))
    })
}

/// Reads `secrets`, which `expected` describes. An error names the member and shows no value.
pub(crate) fn read_secrets<T: DeserializeOwned>(
    secrets: &Map<String, Value>,
    expected: &str,
) -> Result<T, SettingsError> {
    let read = T::deserialize(serde::de::value::MapDeserializer::new(
        secrets.iter().map(|(name, value)| (name.as_str(), value)),
    ));
    read.map_err(|_: serde_json::Error| SettingsError::new("secrets", format!("must be {expected}")))
}

fn member(root: &str, path: &str) -> String {
    if path.is_empty() || path == "." { root.into() } else { format!("{root}.{path}") }
}

/// Reads `allowNetworks`: networks such as `10.0.0.0/8`, or addresses.
pub(crate) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parse = |text: String| {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| serde::de::Error::custom(format!("`{text}` is not a network such as 10.0.0.0/8")))
    };
    texts.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Settings {
        base_url: String,
        #[serde(default, deserialize_with = "networks")]
        allow_networks: Vec<IpNet>,
    }

    #[test]
    fn refused_settings_name_their_member() {
        let cases = [
            (json!([]), "settings must be an object"),
            (json!({}), "settings is invalid: missing field `baseUrl`"),
            (
                json!({"baseUrl": 7}),
                "settings.baseUrl is invalid: invalid type: integer `7`, expected a string",
            ),
            (
                json!({"baseUrl": "", "proxy": ""}),
                "settings has an unknown field `proxy`, expected `baseUrl` or `allowNetworks`",
            ),
            (
                json!({"baseUrl": "", "allowNetworks": ["ten"]}),
                "settings.allowNetworks is invalid: `ten` is not a network such as 10.0.0.0/8",
            ),
        ];
        for (settings, expected) in cases {
            assert_eq!(read_settings::<Settings>(&settings).unwrap_err().to_string(), expected, "{settings}");
        }
        let read =
            read_settings::<Settings>(&json!({"baseUrl": "x", "allowNetworks": ["10.0.0.0/8", "::1"]}));
        let allow_networks = vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        assert_eq!(read.unwrap(), Settings { base_url: "x".into(), allow_networks });
    }

    #[test]
    fn refused_secrets_are_not_told() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Secrets {
            #[expect(dead_code, reason = "only its type is tested")]
            password: Option<String>,
        }
        for secrets in [json!({"password": 12345}), json!({"12345": ""}), json!({"password": {"12345": 1}})] {
            let error =
                read_secrets::<Secrets>(secrets.as_object().unwrap(), "an object with `password`, a text");
            assert_eq!(error.unwrap_err().to_string(), "secrets must be an object with `password`, a text");
        }
    }
}
