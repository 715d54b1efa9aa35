//! Renders at once, off the async threads, with a deadline.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::{RenderError, RenderLimits, Renderer, RendererLimits, Template};
use super::DECLARED;
use crate::model::caller::Payer;
use crate::model::ids::TenantId;

const PAYER: Payer = Payer::Tenant(TenantId(uuid::Uuid::nil()));
const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

fn limits() -> RendererLimits {
    RendererLimits { at_once: 1, waiting: 1, wait: LONG, deadline: LONG, answer: RenderLimits::default() }
}

fn template(source: &str) -> Arc<Template> {
    Arc::new(Template::parse(source, &DECLARED).unwrap())
}

fn values(topic: &str) -> [(&str, &str); 1] {
    [("topic", topic)]
}

/// A job that signals its start, and ends on request.
struct Slow {
    begun: Receiver<()>,
    end: Sender<()>,
}

fn slow() -> (Slow, impl FnOnce() -> Result<(), RenderError> + Send + 'static) {
    let (tell_begun, begun) = channel();
    let (end, told_to_end) = channel();
    let job = move || {
        tell_begun.send(()).unwrap();
        told_to_end.recv().ok();
        Ok(())
    };
    (Slow { begun, end }, job)
}

/// Starts a job that holds a place until its end is requested.
async fn hold(renderer: &Arc<Renderer>) -> (Slow, tokio::task::JoinHandle<Result<(), RenderError>>) {
    let (slow, job) = slow();
    let renderer = Arc::clone(renderer);
    let running = tokio::spawn(async move { renderer.run(PAYER, job).await });
    let slow = tokio::task::spawn_blocking(move || slow.begun.recv().map(|()| slow)).await.unwrap().unwrap();
    (slow, running)
}

#[tokio::test]
async fn the_templates_of_an_answer_render_in_order() {
    let renderer = Renderer::new(RendererLimits::default());
    let templates = vec![template("1 {{ topic }}"), template("2"), template("3 {{ topic | upper }}")];
    assert_eq!(renderer.render(PAYER, &templates, &values("bees")).await.unwrap(), ["1 bees", "2", "3 BEES"]);
}

#[tokio::test]
async fn the_templates_of_an_answer_share_its_limits() {
    let answer = RenderLimits { output_bytes: 10, fuel: 20, ..RenderLimits::default() };
    let renderer = Renderer::new(RendererLimits { answer, ..limits() });
    let (four, loop_of_four) = (template("{{ topic }}"), template("{% for x in [1, 2] %}{% endfor %}"));
    let render = async |templates: &[&Arc<Template>]| {
        let templates: Vec<_> = templates.iter().map(|&one| Arc::clone(one)).collect();
        renderer.render(PAYER, &templates, &values("1234")).await
    };
    assert_eq!(render(&[&four, &four]).await.unwrap(), ["1234", "1234"]);
    assert_eq!(render(&[&four, &four, &four]).await, Err(RenderError::OutputTooLong { limit: 10 }));
    assert_eq!(render(&[&loop_of_four]).await.unwrap(), [""]);
    assert_eq!(render(&[&loop_of_four, &loop_of_four]).await, Err(RenderError::TooMuchWork));
}

#[tokio::test]
async fn one_more_waits_for_a_place_and_the_next_is_refused() {
    let renderer = Arc::new(Renderer::new(limits()));
    let (slow, running) = hold(&renderer).await;
    let waiting = tokio::spawn({
        let renderer = Arc::clone(&renderer);
        async move { renderer.render(PAYER, &[template("{{ topic }}")], &values(&"x".repeat(20_000))).await }
    });
    while renderer.permits.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // At once, and not after the wait.
    let refused = tokio::time::timeout(LONG / 10, renderer.run(PAYER, || Ok(()))).await.unwrap();
    assert_eq!(refused, Err(RenderError::Busy));
    slow.end.send(()).unwrap();
    assert_eq!(running.await.unwrap(), Ok(()));
    assert_eq!(waiting.await.unwrap().unwrap(), ["x".repeat(20_000)]);
}

#[tokio::test]
async fn tenant_that_takes_all_permits_delays_others_by_one_render() {
    let other = Payer::Tenant(TenantId(uuid::Uuid::max()));
    let renderer = Arc::new(Renderer::new(RendererLimits { waiting: 4, ..limits() }));
    let (slow, running) = hold(&renderer).await;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for (payer, number) in [(PAYER, 0), (PAYER, 1), (PAYER, 2), (PAYER, 3), (PAYER, 4), (other, 5)] {
        let (renderer, order) = (Arc::clone(&renderer), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let job = move || {
                order.lock().push(number);
                Ok(())
            };
            renderer.run(payer, job).await
        }));
        tokio::task::yield_now().await;
    }
    slow.end.send(()).unwrap();
    running.await.unwrap().unwrap();
    let mut answered = Vec::new();
    for waiting in waiting {
        answered.push(waiting.await.unwrap().is_ok());
    }
    // The queue holds four: the fifth is refused, and the fourth is displaced by the other tenant.
    assert_eq!(answered, [true, true, true, false, false, true]);
    assert_eq!(*order.lock(), [0, 5, 1, 2]);
}

#[tokio::test]
async fn waiting_too_long_for_a_permit_is_reported() {
    let renderer = Arc::new(Renderer::new(RendererLimits { wait: SOON, ..limits() }));
    let (slow, running) = hold(&renderer).await;
    let heavy = renderer.render(PAYER, &[template("{{ topic }}")], &values(&"x".repeat(20_000))).await;
    let refused = heavy.unwrap_err();
    assert_eq!(refused.to_string(), "too many templates are being rendered; try again");
    slow.end.send(()).unwrap();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_late_render_is_reported_and_keeps_its_permit_until_it_ends() {
    let renderer = Arc::new(Renderer::new(RendererLimits { deadline: SOON, wait: SOON, ..limits() }));
    let (slow, running) = hold(&renderer).await;
    let late = running.await.unwrap().unwrap_err();
    assert_eq!(late.to_string(), "rendering the template took too long; try again");
    assert_eq!(renderer.run(PAYER, || Ok(())).await, Err(RenderError::Busy));
    slow.end.send(()).unwrap();
    assert!(renderer.permits.acquire(PAYER, LONG).await.is_some());
}

#[tokio::test]
async fn a_cancelled_caller_keeps_its_permit_until_the_render_ends() {
    let renderer = Arc::new(Renderer::new(RendererLimits { wait: SOON, ..limits() }));
    let (slow, running) = hold(&renderer).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(renderer.run(PAYER, || Ok(())).await, Err(RenderError::Busy));
    slow.end.send(()).unwrap();
    assert!(renderer.permits.acquire(PAYER, LONG).await.is_some());
}

#[tokio::test]
async fn a_render_does_not_hold_up_the_async_threads() {
    let renderer = Arc::new(Renderer::new(limits()));
    let (slow, running) = hold(&renderer).await;
    // This runtime has one thread, and it still answers.
    tokio::time::sleep(SOON).await;
    slow.end.send(()).unwrap();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_panic_is_an_error_and_releases_the_permit() {
    let renderer = Renderer::new(limits());
    let failed = renderer.run::<()>(PAYER, || panic!("a bug")).await.unwrap_err();
    assert_eq!(failed.to_string(), "the template could not be rendered");
    assert_eq!(renderer.run(PAYER, || Ok(7)).await, Ok(7));
}

#[tokio::test]
async fn cheap_renders_run_inline_without_a_permit() {
    let renderer = Arc::new(Renderer::new(RendererLimits { waiting: 0, ..limits() }));
    let (slow, running) = hold(&renderer).await;
    let light = renderer.render(PAYER, &[template("{{ topic }}!")], &values("bees")).await;
    assert_eq!(light.unwrap(), ["bees!"]);
    // By the length of a value, and by the steps of a template.
    let long = renderer.render(PAYER, &[template("{{ topic }}!")], &values(&"x".repeat(20_000))).await;
    assert_eq!(long, Err(RenderError::Busy));
    let many = renderer.render(PAYER, &[template(&"{{ topic }}".repeat(300))], &values("x")).await;
    assert_eq!(many, Err(RenderError::Busy));
    slow.end.send(()).unwrap();
    running.await.unwrap().unwrap();
}
