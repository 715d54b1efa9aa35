//! The routes of the kinds whose keys are in the query.

/// Declares the query parameters and the handlers of a kind whose key is in the query: `list_or_read`, `write` and
/// `remove`. In this order: the kind with its JSON; the path; the tag; the parameter of the key, with the descriptions of the
/// key and of the definition that it reads; each operation with its description and id, the first also with the descriptions
/// of its answer and the answer's `ETag`.
macro_rules! routes_by_query {
    (
        $kind:ident($input:ident, $view:ident), $path:tt, $tag:tt,
        $param:ident.$key:ident($(#[doc = $key_doc:tt])* key, $(#[doc = $one_doc:tt])* one),
        $(#[doc = $list_doc:tt])* get $list:tt($answer:tt, $revision:tt),
        $(#[doc = $put_doc:tt])* put $put:tt,
        $(#[doc = $delete_doc:tt])* delete $delete:tt $(,)?
    ) => {
        #[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct ListParams {
            $(#[doc = $one_doc])*
            $key: Option<String>,
            /// The maximum number of items on the page.
            #[param(minimum = 1, maximum = 500, default = 100)]
            limit: Option<i64>,
            /// The `nextCursor` of the previous page.
            cursor: Option<String>,
        }

        #[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct $param {
            $(#[doc = $key_doc])*
            pub(super) $key: String,
        }

        /// A page, or one definition.
        #[derive(serde::Serialize, utoipa::ToSchema)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "describes the answer of `CatalogCall::list_or_read`")]
        enum ListedOrRead {
            Listed(Box<Items<$view>>),
            Read(Box<$view>),
        }

        $(#[doc = $list_doc])*
        #[utoipa::path(
            get,
            path = $path,
            operation_id = $list,
            tag = $tag,
            params(("agent" = String, Path, description = "The id of the agent"), ListParams),
            responses((status = 200, description = $answer, body = inline(ListedOrRead), headers(("ETag" = String, description = $revision))), Problems)
        )]
        pub(super) async fn list_or_read(
            call: CatalogCall,
            Params(params): Params<ListParams>,
        ) -> Answer<axum::response::Response> {
            let page = PageParams::new(params.limit, params.cursor);
            Ok(call.list_or_read::<$kind>(params.$key, page).await?)
        }

        $(#[doc = $put_doc])*
        #[utoipa::path(
            put,
            path = $path,
            operation_id = $put,
            tag = $tag,
            params(("agent" = String, Path, description = "The id of the agent"), $param, Preconditions),
            request_body = $input,
            responses(PutAnswers)
        )]
        pub(super) async fn write(
            call: CatalogCall,
            Params(param): Params<$param>,
            Condition(condition): Condition,
            request: axum::extract::Request,
        ) -> Answer<impl axum::response::IntoResponse> {
            Ok(call.put::<$kind>(&param.$key, condition, request).await?)
        }

        $(#[doc = $delete_doc])*
        #[utoipa::path(
            delete,
            path = $path,
            operation_id = $delete,
            tag = $tag,
            params(("agent" = String, Path, description = "The id of the agent"), $param, Preconditions),
            responses(DeleteAnswers)
        )]
        pub(super) async fn remove(
            call: CatalogCall,
            Params(param): Params<$param>,
            Condition(condition): Condition,
        ) -> Answer<impl axum::response::IntoResponse> {
            Ok(call.remove::<$kind>(&param.$key, condition).await?)
        }
    };
}

pub(crate) use routes_by_query;
