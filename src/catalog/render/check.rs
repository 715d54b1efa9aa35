//! The allow-list for statements of the syntax tree. Every other statement is refused.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{Expr, ForLoop, IfCond, List, Spanned, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

use super::analysis::{Check, Local, Position};
use super::cost::{Bound, Plan};
use super::error::RenderError;

/// The one template of an environment.
pub(super) const NAME: &str = "template";

/// Checks a scanned source and returns the cost of rendering it. Stops when the cost exceeds the fuel, so that the
/// check itself is bounded.
pub(super) fn check(
    source: &str,
    syntax: &SyntaxConfig,
    declared: &BTreeSet<&str>,
    fuel: u32,
) -> Result<Plan, RenderError> {
    let tree = parse(source, NAME, syntax.clone()).map_err(|error| RenderError::syntax(&error, 1))?;
    let fuel = u64::from(fuel);
    let mut check =
        Check { declared, fuel, locals: Vec::new(), rounds: 1, steps: 0, bytes: Bound::default() };
    match &tree {
        Stmt::Template(template) => check.statements(&template.children)?,
        _ => return Err(RenderError::Failed("the parser gave no template".into())),
    }
    Ok(check.bytes.into_plan(check.steps))
}

impl<'a> Check<'a, '_> {
    fn statements(&mut self, statements: &[Stmt<'a>]) -> Result<(), RenderError> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'a>) -> Result<(), RenderError> {
        let printed = match statement {
            Stmt::EmitRaw(raw) => Bound::length(raw.raw),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr, Position::Output)?.size,
            Stmt::IfCond(condition) => return self.condition(condition),
            Stmt::ForLoop(repeat) => return self.repeat(repeat),
            _ => {
                return Err(RenderError::refused(
                    1,
                    "only `if`, `elif`, `else` and `for` are allowed as statements",
                ));
            }
        };
        self.copy(printed);
        self.step(1)
    }

    fn condition(&mut self, condition: &IfCond<'a>) -> Result<(), RenderError> {
        self.expression(&condition.expr, Position::Inside)?;
        // A jump before the branch and one behind it.
        self.step(2)?;
        let held = self.body(&condition.true_body)?;
        let otherwise = self.body(&condition.false_body)?;
        self.copy(held.or(otherwise));
        Ok(())
    }

    fn repeat(&mut self, repeat: &Spanned<ForLoop<'a>>) -> Result<(), RenderError> {
        let (variable, list) = parts(repeat)?;
        let shape = self.list(list)?;
        // To find no further item.
        self.step(1)?;
        let items = list.items.len() as u64;
        // Branches that never run are counted too, so that checking them is bounded.
        let outside = self.rounds;
        self.rounds = outside.saturating_mul(items.max(1));
        self.locals.push(Local { name: variable, shape });
        // To take an item, to name it, and to jump back.
        let once = self.step(3).and_then(|()| self.body(&repeat.body))?;
        self.locals.pop();
        self.rounds = outside;
        self.copy(once.times(items));
        Ok(())
    }

    /// Checks statements and returns the bytes that they copy in one pass.
    fn body(&mut self, statements: &[Stmt<'a>]) -> Result<Bound<'a>, RenderError> {
        let outside = std::mem::take(&mut self.bytes);
        self.statements(statements)?;
        Ok(std::mem::replace(&mut self.bytes, outside))
    }
}

/// The variable and the list of a loop, if it has nothing else.
fn parts<'t, 'a>(repeat: &'t Spanned<ForLoop<'a>>) -> Result<(&'a str, &'t Spanned<List<'a>>), RenderError> {
    let reason = match (&repeat.target, &repeat.iter) {
        _ if repeat.recursive => "`recursive` is not allowed",
        _ if repeat.filter_expr.is_some() => "a `for` takes no condition; put an `if` inside it",
        _ if !repeat.else_body.is_empty() => "a `for` takes no `else`",
        (Expr::Var(variable), Expr::List(list)) => return Ok((variable.id, list)),
        (Expr::Var(_), _) => "a `for` goes over a list written out, like `['a', 'b']`; arguments are text",
        _ => "a `for` has one variable",
    };
    Err(RenderError::refused(usize::from(repeat.span().start_line), reason))
}
