//! Renders the templates that agents register: the bodies of resource templates and the messages of prompts.
//!
//! Both the author of a template and the caller that renders it may be hostile. The template language is therefore a
//! small subset of Jinja, enforced by an allow-list on the syntax tree at registration ([`Template::parse`]):
//!
//! - `{{ … }}`, `{% if %}` with `elif` and `else`, and `{% for x in [ … ] %}` over a list written out;
//! - the filters `default`, `upper`, `lower`, `trim`, `length` and `tojson`;
//! - comparisons, `and`, `or`, `not`, `in`; strings, numbers, `true` and `false`; `~` in `{{ … }}`;
//! - `loop.index`, `loop.index0`, `loop.first` and `loop.last`; comments, `raw` and whitespace control.
//!
//! There are three lines of defense. A scan of the tokens bounds nesting before any recursive code sees the source
//! (`scan`). The check (`check`) computes how much the worst path through the template copies, as a formula over the
//! lengths of the values, so a render that would need too much memory or time is refused before it starts. The engine
//! runs with fuel, a recursion limit, and a writer that counts (`output`).
//!
//! Values are text and are never parsed, so there is no template injection. Nothing is escaped: the output is text, not
//! HTML, and may contain instructions to a model (prompt injection), which clients must expect.

mod analysis;
mod check;
mod cost;
mod error;
mod expression;
mod filters;
mod limits;
mod output;
mod renderer;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

pub use error::{MAX_SOURCE_BYTES, RenderError};
pub use limits::{RenderLimits, RendererLimits};
pub use renderer::Renderer;

use check::NAME;
use cost::Plan;
use limits::{Budget, MAX_BLOCKS};
use output::BoundedText;

/// A template that was checked and compiled. Rendering it cannot fail but for its limits.
pub struct Template {
    environment: Environment<'static>,
    plan: Plan,
    limits: RenderLimits,
    source_bytes: usize,
}

impl Template {
    /// Checks and compiles a template within the default limits.
    ///
    /// `declared` are the names of its arguments; one that is not an identifier can be declared and not used.
    ///
    /// # Errors
    /// As [`parse_within`](Self::parse_within).
    pub fn parse(source: &str, declared: &[impl AsRef<str>]) -> Result<Self, RenderError> {
        Self::parse_within(source, declared, RenderLimits::default())
    }

    /// Checks and compiles a template.
    ///
    /// # Errors
    /// [`RenderError::SourceTooLong`]; [`RenderError::Refused`] for bad syntax and for everything that is not on the
    /// allow-list; [`RenderError::Undeclared`]; [`RenderError::TooMuchWork`] if its loops are too large for the
    /// limits for all values.
    pub fn parse_within(
        source: &str,
        declared: &[impl AsRef<str>],
        limits: RenderLimits,
    ) -> Result<Self, RenderError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(RenderError::SourceTooLong { bytes: source.len() });
        }
        let syntax = syntax()?;
        scan::scan(source, &syntax)?;
        let declared: BTreeSet<&str> = declared.iter().map(AsRef::as_ref).collect();
        let plan = check::check(source, &syntax, &declared, limits.fuel)?;
        Budget::of(&limits).spend(&plan, plan.fixed)?;
        let environment = compile(source, syntax, &limits)?;
        Ok(Self { environment, plan, limits, source_bytes: source.len() })
    }

    /// The approximate memory in bytes, for the weight in a cache: the engine's buffers, and at most a dozen per byte of
    /// the source.
    pub fn weight(&self) -> usize {
        (6 << 10) + 12 * self.source_bytes
    }

    /// Renders with the values of its arguments: a declared argument without one is the empty string, a value that is
    /// not used is ignored, and of two values with the same name the later counts.
    ///
    /// This computes for up to a few hundred milliseconds; [`Renderer`] does it off the async threads.
    ///
    /// # Errors
    /// [`RenderError::ValuesTooLong`] and [`RenderError::OutputTooLong`]; [`RenderError::Failed`] is a bug.
    pub fn render(&self, values: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<String, RenderError> {
        self.render_on(&mut Budget::of(&self.limits), values)
    }

    /// Renders at the expense of a budget.
    fn render_on(
        &self,
        budget: &mut Budget,
        values: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> Result<String, RenderError> {
        let given = self.plan.arguments(values);
        let bytes = self.plan.bytes(&given);
        budget.spend(&self.plan, bytes)?;
        let context = Value::from_pairs(self.plan.names().zip(given));
        let mut output = BoundedText::new(budget.output_bytes, bytes);
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut output).map(drop));
        if output.is_full() {
            return Err(RenderError::OutputTooLong { limit: budget.limits.output_bytes });
        }
        rendered.map_err(|error| RenderError::Failed(error.to_string()))?;
        let text = output.into_text();
        budget.output_bytes -= text.len();
        Ok(text)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("plan", &self.plan)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Whether a template can print an argument of this name as `{{ name }}`: it is an identifier, of any script, and no
/// word of the language.
pub fn is_variable_name(name: &str) -> bool {
    const WORDS: [&str; 15] = [
        "and", "else", "false", "False", "if", "in", "is", "loop", "none", "None", "not", "or", "self",
        "true", "True",
    ];
    let Ok(syntax) = syntax() else { return false };
    let printed = format!("{{{{{name}}}}}");
    let tokens: Result<Vec<_>, _> = tokenize(&printed, false, syntax).take(4).collect();
    let tokens = tokens.unwrap_or_default();
    let printed = matches!(
        tokens.as_slice(),
        [(Token::VariableStart, _), (Token::Ident(found), _), (Token::VariableEnd, _)] if *found == name
    );
    printed && !WORDS.contains(&name)
}

/// Jinja's own delimiters; the newline at the end belongs to the text.
fn syntax() -> Result<SyntaxConfig, RenderError> {
    let built = SyntaxConfig::builder().keep_trailing_newline(true).build();
    built.map_err(|error| RenderError::Failed(error.to_string()))
}

fn compile(
    source: &str,
    syntax: SyntaxConfig,
    limits: &RenderLimits,
) -> Result<Environment<'static>, RenderError> {
    let mut environment = filters::environment();
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // One frame a block, and the outermost.
    environment.set_recursion_limit(MAX_BLOCKS + 2);
    environment.set_fuel(Some(u64::from(limits.fuel)));
    environment
        .add_template_owned(NAME, source.to_owned())
        .map_err(|error| RenderError::Failed(error.to_string()))?;
    Ok(environment)
}
