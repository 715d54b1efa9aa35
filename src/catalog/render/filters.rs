//! The permitted filters, and the maximum growth of a text by each.
//!
//! They are implemented here instead of by the engine, so that no other filter is compiled in, and none exceeds the
//! growth that the check assumes.

use std::borrow::Cow;
use std::sync::LazyLock;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

/// The properties of a filter that the check needs.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) name: &'static str,
    /// The maximum number of output bytes per input byte; `None` for `default`, which returns one of its operands.
    pub(super) growth: u64,
    /// The maximum number of added bytes.
    pub(super) extra: u64,
    /// Whether it makes text.
    pub(super) is_text: bool,
}

/// The filter that takes an argument.
pub(super) const DEFAULT: &str = "default";

/// All other filters. Changing the case of a character yields at most three times its bytes; JSON writes a control
/// character as six.
const FILTERS: [Filter; 5] = [
    Filter { name: "upper", growth: 3, extra: 0, is_text: true },
    Filter { name: "lower", growth: 3, extra: 0, is_text: true },
    Filter { name: "trim", growth: 1, extra: 0, is_text: true },
    Filter { name: "length", growth: 0, extra: 20, is_text: false },
    Filter { name: "tojson", growth: 6, extra: 2, is_text: true },
];

pub(super) fn find(name: &str) -> Option<&'static Filter> {
    FILTERS.iter().find(|filter| filter.name == name)
}

/// An environment with these filters and nothing else. Copies share the filters.
pub(super) fn environment() -> Environment<'static> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut environment = Environment::empty();
        environment.add_filter(DEFAULT, default);
        environment.add_filter("upper", |value: &Value| text(value).to_uppercase());
        environment.add_filter("lower", |value: &Value| text(value).to_lowercase());
        environment.add_filter("trim", |value: &Value| text(value).trim().to_owned());
        environment.add_filter("length", |value: &Value| text(value).chars().count());
        environment.add_filter("tojson", tojson);
        environment
    });
    ENVIRONMENT.clone()
}

/// Text unchanged; numbers and booleans as they are printed.
fn text(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed)
}

/// The other value in place of the empty string, which is the value of an omitted argument.
fn default(value: &Value, other: &Value) -> Value {
    if value.as_str() == Some("") { other.clone() } else { value.clone() }
}

/// A complete JSON value: `<` and `&` are not escaped, because the output is not HTML.
fn tojson(value: &Value) -> Result<String, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => serde_json::to_string(text)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string())),
        // Printed as `True`, as in Jinja.
        (None, ValueKind::Bool) => Ok(value.is_true().to_string()),
        (None, ValueKind::Number) => Ok(value.to_string()),
        (None, kind) => Err(Error::new(ErrorKind::BadSerialization, kind.to_string())),
    }
}
