//! How each event is written: the names and the order of its fields.

use super::{Event, EventKind, Fact, FinishReason, Terms, Tokens};
use crate::VERSION;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;

impl Event<'_> {
    /// Appends the event as a line, with its newline.
    pub(crate) fn write(&self, out: &mut Vec<u8>, seq: u64, at: Timestamp, iteration: u64) {
        write_line(out, (seq, at), &self.kind(), iteration, |line| {
            self.write_fields(line);
        });
    }

    fn kind(&self) -> EventKind<'static> {
        match self {
            Self::EngineStart { .. } => EventKind::EngineStart,
            Self::UserMessage { .. } => EventKind::UserMessage,
            Self::Thought { .. } => EventKind::Thought,
            Self::ActionRequest { .. } => EventKind::ActionRequest,
            Self::ActionCheck { .. } => EventKind::ActionCheck,
            Self::ActionResult { .. } => EventKind::ActionResult,
            Self::Acceptance { .. } => EventKind::Acceptance,
            Self::HumanInputRequest { .. } => EventKind::HumanInputRequest,
            Self::HumanInputReceived { .. } => EventKind::HumanInputReceived,
            Self::SystemMessage { .. } => EventKind::SystemMessage,
            Self::HookAudit { .. } => EventKind::HookAudit,
            Self::Error { .. } => EventKind::Error,
            Self::EngineEnd { .. } => EventKind::EngineEnd,
        }
    }

    fn write_fields(&self, line: &mut Object<'_>) {
        match *self {
            Self::EngineStart { .. } => self.write_start(line),
            Self::UserMessage { content } => {
                line.put("content", content);
            }
            Self::Thought { .. } => self.write_thought(line),
            Self::ActionRequest {
                action_id,
                tool_name,
                tool_args_json,
                resolved_command,
                call_id,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .raw("tool_args", tool_args_json)
                    .put("resolved_command", resolved_command)
                    .put("call_id", call_id)
                    .put("execution_ref", &execution_ref);
            }
            Self::ActionCheck {
                action_id,
                tool_name,
                finding,
                exit_code,
                duration_ms,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .put("status", finding.name())
                    .put("exit_code", &exit_code)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", execution_ref);
            }
            Self::ActionResult {
                action_id,
                tool_name,
                status,
                exit_code,
                observation_content,
                duration_ms,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .put("status", status.name())
                    .put("exit_code", &exit_code)
                    .put("observation_content", observation_content)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", &execution_ref);
            }
            Self::Acceptance {
                thought_seq,
                what,
                exit_code,
                duration_ms,
                execution_ref,
                repair,
                content,
            } => {
                line.put("thought_seq", &thought_seq)
                    .put("what", what)
                    .put("exit_code", &exit_code)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", &execution_ref)
                    .put("repair", &repair)
                    .put_some("content", content);
            }
            Self::HumanInputRequest {
                action_id,
                request_id,
                prompt,
                input_type,
                sensitive,
                fingerprint,
            } => {
                line.put("action_id", action_id)
                    .put("request_id", request_id)
                    .put("prompt", prompt)
                    .put("input_type", input_type.name())
                    .put("sensitive", &sensitive)
                    .put_some("fingerprint", fingerprint);
            }
            Self::HumanInputReceived {
                action_id,
                request_id,
                response,
                fingerprint,
            } => {
                line.put("action_id", action_id)
                    .put("request_id", request_id)
                    .put("response", response)
                    .put_some("fingerprint", fingerprint);
            }
            Self::SystemMessage {
                level,
                content,
                fact,
            } => {
                line.put("level", &level).put("content", content);
                match fact {
                    Some(Fact::Remedy(json)) => line.raw("remedy", json),
                    Some(Fact::Pause(json)) => line.raw("pause", json),
                    None => line,
                };
            }
            Self::HookAudit {
                hook_name,
                status,
                io_path_ref,
            } => {
                line.put("hook_name", hook_name)
                    .put("status", &status)
                    .put("io_path_ref", io_path_ref);
            }
            Self::Error {
                error_message,
                error_details_json,
            } => {
                line.put("error_message", error_message)
                    .raw("error_details", error_details_json);
            }
            Self::EngineEnd {
                run_id,
                status,
                stop_reason,
                exit_code,
                final_iteration,
                engine_ms,
                text,
            } => {
                line.put("run_id", run_id)
                    .put("status", status)
                    .put("stop_reason", stop_reason)
                    .put("exit_code", &exit_code)
                    .put("final_iteration", &final_iteration);
                if let Some(ms) = engine_ms {
                    line.put("engine_ms", &ms);
                }
                line.put(
                    if status == "COMPLETED" {
                        "result"
                    } else {
                        "error"
                    },
                    text,
                );
            }
        }
    }

    fn write_start(&self, line: &mut Object<'_>) {
        let Self::EngineStart {
            run_id,
            agent_home,
            work_dir,
            task,
            message_parts,
            config_json,
            hostname,
            call_id,
            resumed,
            parent_run_id,
            parent_call_id,
            forked_from,
            set,
            launcher,
            traceparent,
        } = *self
        else {
            return;
        };
        line.put("run_id", run_id)
            .put("agent_home", agent_home)
            .put("work_dir", work_dir)
            .put("task", task)
            .raw("config", config_json)
            .put("pid", &std::process::id())
            .put("hostname", hostname)
            .put("call_id", call_id)
            .put("delta_version", VERSION)
            .put("resumed", &resumed)
            .put_some("message_parts", message_parts)
            .put_some("parent_run_id", parent_run_id)
            .put_some("parent_call_id", parent_call_id)
            .put_some("forked_from", forked_from)
            .put_some("set", (!set.is_empty()).then_some(set))
            .put_some("launcher", (!launcher.is_empty()).then_some(launcher))
            .put_some("traceparent", traceparent);
    }

    fn write_thought(&self, line: &mut Object<'_>) {
        let Self::Thought {
            content_json,
            tool_calls_json,
            invalid_arguments,
            reasoning,
            finish_reason,
            model,
            usage,
            terms,
            llm_invocation_ref,
            wire_json,
        } = *self
        else {
            return;
        };
        #[derive(serde::Serialize)]
        struct Usage<'t> {
            #[serde(flatten)]
            tokens: Tokens,
            #[serde(flatten)]
            terms: &'t Terms,
        }
        let usage = usage.map(|tokens| Usage { tokens, terms });
        // Who reads the journal always finds a text.
        let is_null = content_json == b"null";
        line.raw("content", if is_null { b"\"\"" } else { content_json });
        if is_null {
            line.put("content_null", &true);
        }
        if let Some(calls) = tool_calls_json {
            line.raw("tool_calls", calls);
        }
        if !invalid_arguments.is_empty() {
            let mut texts = Object::begin(line.nest("invalid_arguments"));
            for (id, text) in invalid_arguments {
                texts.put(id, text);
            }
            texts.end();
        }
        for (name, value) in reasoning {
            line.raw(name, value);
        }
        line.put("finish_reason", &finish_reason.map(FinishReason::name))
            .put("model", &model)
            .put_some("usage", usage.as_ref())
            .put("llm_invocation_ref", llm_invocation_ref);
        if let Some(wire) = wire_json {
            line.raw("wire", wire);
        }
    }
}

/// Appends a line of any type, with the fields that all lines have and those that are put into it.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    (seq, at): (u64, Timestamp),
    kind: &EventKind<'_>,
    iteration: u64,
    fields: impl FnOnce(&mut Object<'_>),
) {
    let mut line = Object::begin(out);
    line.put("seq", &seq)
        .put("timestamp", &at.to_string())
        .put("type", kind.name())
        .put("iteration", &iteration);
    fields(&mut line);
    line.end();
    out.push(b'\n');
}
