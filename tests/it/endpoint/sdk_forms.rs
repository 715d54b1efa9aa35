//! The official Rust SDK as a client that shows forms for the missing arguments of prompts.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, GetPromptRequestParams, Implementation,
    ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, RequestContext, RoleClient, RunningService, ServiceError,
};
use serde_json::{Value, json};

use super::sdk::{Credential, transport};
use crate::support::app::{Replica, gateway};

/// A client that returns these answers to forms, one after the other, and keeps what was asked.
#[derive(Default)]
struct FormClient {
    answers: Mutex<VecDeque<ElicitResult>>,
    asked: Mutex<Vec<Value>>,
}

impl ClientHandler for FormClient {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        self.asked.lock().push(serde_json::to_value(request).unwrap());
        Ok(self.answers.lock().pop_front().unwrap())
    }

    fn get_info(&self) -> ClientConfig {
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(forms);
        ClientConfig::new(capabilities, Implementation::new("it", "1"))
            .with_protocol_version(ProtocolVersion::V_2026_07_28)
    }
}

async fn connect(replica: &Replica, key: &str) -> RunningService<RoleClient, FormClient> {
    let newest = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions: newest };
    FormClient::default()
        .serve_with_lifecycle(transport(replica, Credential::Bearer(key)), mode)
        .await
        .unwrap()
}

/// The text of the prompt, or the message of the error, with these answers; and the number of forms.
async fn got(
    client: &RunningService<RoleClient, FormClient>,
    answers: Vec<ElicitResult>,
) -> (Result<String, String>, usize) {
    let handler = client.service();
    *handler.answers.lock() = answers.into();
    handler.asked.lock().clear();
    let result = client.get_prompt(GetPromptRequestParams::new("greet")).await;
    let text = match result {
        Ok(got) => Ok(got.messages[0].content.as_text().unwrap().text.clone()),
        Err(ServiceError::McpError(error)) => Err(format!("{} {}", error.code.0, error.message)),
        Err(other) => panic!("{other:?}"),
    };
    (text, handler.asked.lock().len())
}

#[tokio::test]
async fn sdk_answers_the_forms_of_prompts() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let prompt = json!({
        "arguments": [
            {"name": "who", "title": "Who", "required": true},
            {"name": "tone", "required": true, "completions": ["warm", "cold"], "closed": true},
        ],
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello {{ who }}, {{ tone }}!"}}],
    });
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/greet", Some(prompt)).await.status, 201);
    let client = connect(&replica, &key).await;
    let accept = |content: Value| ElicitResult::new(ElicitationAction::Accept).with_content(content);
    let good = || accept(json!({"who": "二", "tone": "warm"}));

    assert_eq!(got(&client, vec![good()]).await, (Ok("Hello 二, warm!".to_owned()), 1));
    let asked = client.service().asked.lock().clone();
    let tone = json!({"type": "string", "enum": ["warm", "cold"]});
    let properties = json!({"who": {"type": "string", "title": "Who"}, "tone": tone});
    let schema = json!({"type": "object", "properties": properties, "required": ["who", "tone"]});
    let message = "The prompt greet needs more arguments.";
    assert_eq!(asked, [json!({"mode": "form", "message": message, "requestedSchema": schema})]);

    for wrong in [
        json!({"who": 2, "tone": "warm"}),
        json!({"who": "二"}),
        json!({"other": "二", "tone": "warm"}),
        json!({"who": "二", "tone": "hot"}),
    ] {
        let answers = vec![accept(wrong.clone()), good()];
        assert_eq!(got(&client, answers).await, (Ok("Hello 二, warm!".to_owned()), 2), "{wrong}");
    }
    let unknown = accept(json!({"who": "二", "tone": "cold", "other": true}));
    assert_eq!(got(&client, vec![unknown]).await, (Ok("Hello 二, cold!".to_owned()), 1));
    for (action, wrong) in [
        (ElicitationAction::Decline, "-32602 the form for the missing arguments was declined"),
        (ElicitationAction::Cancel, "-32602 the form for the missing arguments was cancelled"),
    ] {
        assert_eq!(got(&client, vec![ElicitResult::new(action)]).await, (Err(wrong.to_owned()), 1));
    }
    client.cancel().await.unwrap();
}
