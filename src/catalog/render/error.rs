//! Errors of registering and of rendering a template.

use minijinja::Error as EngineError;

/// The maximum length of a template, in bytes.
pub const MAX_SOURCE_BYTES: usize = 64 << 10;

/// The maximum length of an author's text that an error message repeats, in characters.
const EXCERPT: usize = 100;

/// Why a template is refused when it is registered, or did not render.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The source is longer than [`MAX_SOURCE_BYTES`].
    #[error("the template is {bytes} bytes long; at most {MAX_SOURCE_BYTES} are allowed")]
    SourceTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The source is not a template, or uses something that is not allowed.
    #[error("line {line}: {reason}")]
    Refused {
        /// Where, counted from 1.
        line: usize,
        /// The error and how to fix it, as a clause.
        reason: String,
    },
    /// A name is used that is not among the arguments.
    #[error("line {line}: `{name}` is not declared; declare it as an argument or correct the name")]
    Undeclared {
        /// Where, counted from 1.
        line: usize,
        /// The name, shortened if it is long.
        name: String,
    },
    /// The loops are so large, for any values, that rendering would take too much time or memory.
    #[error("the template takes too much work to render; make its loops, lists and texts smaller")]
    TooMuchWork,
    /// The values are so long that rendering would take too long or too much memory.
    #[error("the values are too long for this template; give shorter ones")]
    ValuesTooLong,
    /// The output would be too long.
    #[error("the rendered text is longer than {limit} bytes; give shorter values or shorten the template")]
    OutputTooLong {
        /// The maximum length, in bytes.
        limit: usize,
    },
    /// Too many renders are in progress and waiting.
    #[error("too many templates are being rendered; try again")]
    Busy,
    /// The render did not end in time.
    #[error("rendering the template took too long; try again")]
    Late,
    /// A bug; its description is only logged.
    #[error("the template could not be rendered")]
    Failed(String),
}

impl RenderError {
    pub(super) fn refused(line: usize, reason: impl Into<String>) -> Self {
        Self::Refused { line, reason: reason.into() }
    }

    pub(super) fn undeclared(line: usize, name: &str) -> Self {
        Self::Undeclared { line, name: excerpt(name) }
    }

    /// The parser's message about a syntax error; `line` if it names none.
    pub(super) fn syntax(error: &EngineError, line: usize) -> Self {
        let reason = error.detail().map_or_else(|| error.kind().to_string(), excerpt);
        Self::refused(error.line().unwrap_or(line), format!("the syntax is wrong: {reason}"))
    }
}

/// The beginning of an author's own text.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
