//! Rendering off the async threads, with bounded concurrency and a deadline.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::Template;
use super::error::RenderError;
use super::limits::{Budget, RendererLimits};
use crate::cache::FairSemaphore;
use crate::model::caller::Payer;
use crate::telemetry::trace::{Kind, traced};

/// The maximum worst-case cost of the renders of one answer that run inline: a few microseconds, less than passing them
/// to another thread costs.
const LIGHT_STEPS: u64 = 256;
const LIGHT_BYTES: u64 = 16 << 10;
/// How long a job that is run to its end waits for a permit.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// Renders templates on blocking threads, except those whose bounded cost is a few microseconds.
///
/// A caller that is cancelled or times out leaves a thread behind that cannot be stopped. The thread keeps its permit
/// until it ends, so there are never more of them than `at_once`. It ends soon, because fuel, work and output are
/// bounded: at the default limits within some hundred milliseconds. A render that has not begun by the timeout never
/// does.
///
/// The permits go round between the payers that wait for one, so that none of them delays another by more than a render, or the
/// encoding of one result (see [`run_to_end`](Self::run_to_end)).
#[derive(Debug)]
pub struct Renderer {
    pub(super) permits: Arc<FairSemaphore<Payer>>,
    limits: RendererLimits,
}

fn is_light(templates: &[Arc<Template>], values: &[(&str, &str)]) -> bool {
    let (mut steps, mut bytes) = (0_u64, 0_u64);
    for Template { plan, .. } in templates.iter().map(|template| &**template) {
        steps = steps.saturating_add(plan.steps);
        bytes = bytes.saturating_add(plan.bytes(&plan.arguments(values)));
    }
    steps <= LIGHT_STEPS && bytes <= LIGHT_BYTES
}

fn render(
    templates: &[Arc<Template>],
    mut budget: Budget,
    values: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<Vec<String>, RenderError> {
    templates.iter().map(|template| template.render_on(&mut budget, values)).collect()
}

impl Renderer {
    /// Creates a renderer.
    pub fn new(limits: RendererLimits) -> Self {
        Self { permits: FairSemaphore::new(limits.at_once, limits.waiting), limits }
    }

    /// The number of free permits.
    pub fn free(&self) -> usize {
        self.permits.free()
    }

    /// Renders the templates of one answer with the same values, in order and within one set of limits.
    ///
    /// # Errors
    /// As [`Template::render`]; [`RenderError::TooMuchWork`] if the templates are too much together;
    /// [`RenderError::Busy`] if there is no permit in time; [`RenderError::Late`] if the deadline passes.
    pub async fn render(
        &self,
        payer: Payer,
        templates: &[Arc<Template>],
        values: &[(&str, &str)],
    ) -> Result<Vec<String>, RenderError> {
        traced("render", Kind::Internal, pin!(self.render_within(payer, templates, values))).await
    }

    async fn render_within(
        &self,
        payer: Payer,
        templates: &[Arc<Template>],
        values: &[(&str, &str)],
    ) -> Result<Vec<String>, RenderError> {
        let budget = Budget::of(&self.limits.answer);
        if is_light(templates, values) {
            return render(templates, budget, values);
        }
        let templates = templates.to_vec();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let values: Vec<_> = values.iter().map(owned).collect();
        // Boxed, so that the future of an inline render is small to move.
        Box::pin(self.run(payer, move || render(&templates, budget, &values))).await
    }

    /// Runs another job with a permit, such as parsing a template; the job must be bounded in itself.
    /// The permit is accounted to `payer`.
    ///
    /// # Errors
    /// The job's own, [`RenderError::Busy`] and [`RenderError::Late`].
    pub async fn run<T: Send + 'static>(
        &self,
        payer: Payer,
        job: impl FnOnce() -> Result<T, RenderError> + Send + 'static,
    ) -> Result<T, RenderError> {
        let mut running = self.start(payer, self.limits.wait, job).await?;
        let Ok(ended) = timeout(self.limits.deadline, &mut running).await else {
            running.abort();
            return Err(RenderError::Late);
        };
        ended.unwrap_or_else(|error| Err(RenderError::Failed(error.to_string())))
    }

    /// Runs a job with a permit as [`run`](Self::run) does, but waits longer for it, and for the end of the job
    /// without a deadline: for work whose length depends on the machine and on what is answered alone, not on a template.
    ///
    /// # Errors
    /// [`RenderError::Busy`] and [`RenderError::Failed`].
    pub async fn run_to_end<T: Send + 'static>(
        &self,
        payer: Payer,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RenderError> {
        let ended = self.start(payer, LONG_WAIT, job).await?.await;
        ended.map_err(|error| RenderError::Failed(error.to_string()))
    }

    /// Starts a job once there is a permit for it.
    async fn start<T: Send + 'static>(
        &self,
        payer: Payer,
        wait: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, RenderError> {
        let permit = self.permits.acquire(payer, wait).await.ok_or(RenderError::Busy)?;
        Ok(spawn_blocking(move || {
            let _permit = permit;
            job()
        }))
    }
}
