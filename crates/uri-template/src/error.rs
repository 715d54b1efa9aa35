//! Errors of parsing and of expanding a template.

use crate::limits::MAX_TEMPLATE_BYTES;

/// Why a text is not an accepted URI template. Each message continues the sentence "the template …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriTemplateError {
    /// The template is longer than [`MAX_TEMPLATE_BYTES`].
    #[error("is longer than {MAX_TEMPLATE_BYTES} bytes")]
    TooLong,
    /// Literal text contains a character that is not allowed in a URI.
    #[error("holds {0:?}, which no URI may hold: percent-encode it")]
    Character(char),
    /// A `%` in literal text is not followed by two hexadecimal digits.
    #[error("holds a % that is not followed by two hexadecimal digits: write it as %25")]
    Percent,
    /// A brace is not balanced.
    #[error("holds a brace without its partner")]
    Brace,
    /// The operator is one that RFC 6570 reserves.
    #[error("uses the operator {0:?} in an expression, which RFC 6570 reserves")]
    Operator(char),
    /// A level 4 modifier, `:3` or `*`, follows a variable.
    #[error("uses a modifier in {{{0}}}: templates up to level 3 of RFC 6570 are served, without :3 and *")]
    Modifier(String),
    /// A variable's name is empty or has a character that RFC 6570 does not allow.
    #[error(
        "names a variable {0:?}: a name has ASCII letters, digits and _, and . between them; values may have any script"
    )]
    Name(String),
    /// A variable occurs twice.
    #[error("names the variable {0} twice")]
    Repeated(String),
    /// It does not begin with a scheme as literal text.
    #[error("does not begin with a scheme as literal text, as file: in file:///{{path}}")]
    Scheme,
    /// It does not expand to an absolute URI of RFC 3986.
    #[error("expands to no absolute URI of RFC 3986, even where every value is 1")]
    NotAUri,
    /// Its path has a segment `..`.
    #[error("has a path segment .., which no matched URI may have")]
    DotDot,
    /// `{+…}` or `{#…}` has several variables.
    #[error(
        "lists several variables in {{{0}}}: a value may hold the comma there, so give each its own expression"
    )]
    ReservedList(String),
    /// It has a second variable that may hold any reserved character.
    #[error(
        "has {{+{first}}} and {{+{second}}}: either may hold every separator, so only one can be read back"
    )]
    SecondReserved {
        /// The first such variable.
        first: String,
        /// The second.
        second: String,
    },
    /// `{+…}` is followed directly by `{&…}` or `{;…}`.
    #[error(
        "has {{{operator}…}} right after {{+{name}}}, whose value may hold {operator}: only {{?…}} and {{#…}} may \
         follow it"
    )]
    AfterReserved {
        /// The reserved variable.
        name: String,
        /// The operator of the expression after it.
        operator: char,
    },
    /// Something follows `{#…}`.
    #[error("continues after {{#{0}}}: a fragment is the end of a URI")]
    AfterFragment(String),
    /// Nothing separates two variables.
    #[error("has {left} and {right} side by side: put a literal between them, such as /")]
    Adjacent {
        /// The variable before.
        left: String,
        /// The variable after.
        right: String,
    },
    /// What separates two variables may also be part of their values.
    #[error(
        "has only {literal:?} between {left} and {right}, which may be part of their values: use one of / : , instead"
    )]
    Separator {
        /// The variable before.
        left: String,
        /// The literal text between them.
        literal: String,
        /// The variable after.
        right: String,
    },
}

/// Why a template does not expand with some values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A required variable is missing. Those of `{;…}`, `{?…}`, `{&…}` and `{#…}` are optional.
    #[error("the variable {0} is missing")]
    Missing(String),
    /// A value is not allowed.
    #[error("the value of {name} {fault}")]
    Value {
        /// The variable.
        name: String,
        /// What is wrong with its value.
        fault: ValueError,
    },
    /// The result is not an absolute URI, as of `x://h:{port}` with the port `a`.
    #[error("these values do not expand to an absolute URI")]
    NotAUri,
    /// The result has a path segment `..`, made of values and literal text together.
    #[error("these values expand to a path segment ..")]
    DotDot,
}

/// Why a value is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It is empty, which outside `{;…}`, `{?…}`, `{&…}` and `{#…}` expands like a missing one.
    #[error("is empty")]
    Empty,
    /// It contains a control character.
    #[error("holds a control character")]
    Control,
    /// It contains a `/`, which only `{+…}` and `{#…}` allow.
    #[error("holds a /, which only {{+…}} and {{#…}} allow")]
    Slash,
    /// It has a segment `..`, between `/`, `\` or its ends.
    #[error("has a segment ..")]
    DotDot,
}
