//! Handlers without their types, for routes that are compiled once.

use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures_util::future::BoxFuture;

use super::services::Admin;

/// A handler of an operation.
///
/// axum wraps the type of a handler in that of each layer of its routes. The compiler would do that for each of the operations,
/// and see each time whether the future of the handler is `Send`: a quarter of the time that the crate takes to compile.
#[derive(Clone)]
pub(super) struct ErasedHandler(
    Arc<dyn Fn(Request, Arc<Admin>) -> BoxFuture<'static, Response> + Send + Sync>,
);

impl ErasedHandler {
    pub(super) fn new<T, H>(handler: H) -> Self
    where
        H: Handler<T, Arc<Admin>, Future = BoxFuture<'static, Response>> + Sync,
    {
        Self(Arc::new(move |request, admin| handler.clone().call(request, admin)))
    }
}

impl Handler<(), Arc<Admin>> for ErasedHandler {
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, admin: Arc<Admin>) -> Self::Future {
        (self.0)(request, admin)
    }
}

/// The routes of operations of one path and what describes them, as [`utoipa_axum::routes!`] makes them, of [`ErasedHandler`]s.
macro_rules! routes {
    ($($handler:path),+ $(,)?) => {{
        use utoipa_axum::PathItemExt;
        let (mut schemas, mut paths) = (Vec::new(), utoipa::openapi::path::Paths::new());
        let mut methods = axum::routing::MethodRouter::new();
        $(
            let (path, operation, types) = utoipa_axum::routes!(@resolve_types $handler : schemas);
            for method in &types {
                let handler = $crate::admin::erased_handler::ErasedHandler::new($handler);
                methods = methods.on(method.to_method_filter(), handler);
            }
            paths.add_path_operation(&path, types, operation);
        )+
        (schemas, paths, methods)
    }};
}

pub(super) use routes;
