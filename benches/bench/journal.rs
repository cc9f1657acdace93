//! From a journal's bytes to a conversation.

use crate::figures::{self, Figures, often};
use delta_engine::record::messages;
use delta_engine::record::state::{self, Reading};

/// A journal of at least so many megabytes, with observations of 1 KiB.
pub fn journal(megabytes: usize) -> String {
    let at = "2025-10-13T14:35:22.123Z";
    let mut journal = format!(
        "{{\"seq\":1,\"timestamp\":\"{at}\",\"type\":\"USER_MESSAGE\",\"iteration\":0,\"content\":\"go\"}}\n"
    );
    let observation = "one line of output \\\"quoted\\\"\\n".repeat(32);
    let mut seq = 1;
    let mut iteration = 0;
    while journal.len() < megabytes << 20 {
        iteration += 1;
        let begin = |seq: usize, kind: &str| {
            format!(
                "{{\"seq\":{seq},\"timestamp\":\"{at}\",\"type\":\"{kind}\",\"iteration\":{iteration},"
            )
        };
        journal += &begin(seq + 1, "THOUGHT");
        journal += &format!(
            "\"content\":\"I look.\",\"tool_calls\":[{{\"id\":\"c{iteration}\",\"type\":\"function\",\"function\":{{\"name\":\"look\",\"arguments\":\"{{}}\"}}}}],\"finish_reason\":\"stop\",\"model\":\"m\",\"llm_invocation_ref\":\"io/invocations/x\"}}\n"
        );
        journal += &begin(seq + 2, "ACTION_REQUEST");
        journal += &format!(
            "\"action_id\":\"c{iteration}\",\"tool_name\":\"look\",\"tool_args\":{{}},\"resolved_command\":\"ls\",\"call_id\":\"x\",\"execution_ref\":\"io/tool_executions/x\"}}\n"
        );
        journal += &begin(seq + 3, "ACTION_RESULT");
        journal += &format!(
            "\"action_id\":\"c{iteration}\",\"tool_name\":\"look\",\"status\":\"SUCCESS\",\"exit_code\":0,\"observation_content\":\"{observation}\",\"duration_ms\":1,\"execution_ref\":\"io/tool_executions/x\"}}\n"
        );
        seq += 3;
    }
    journal
}

/// Builds conversations from journals; the floor is to look at every byte once.
pub fn rebuild(out: &mut Figures) {
    figures::heading("journal to conversation");
    for megabytes in [1, 10, 100] {
        let journal = journal(megabytes);
        let build = |window| {
            let reading = Reading {
                lenient: false,
                window,
            };
            let run = state::read(journal.as_bytes(), reading).expect("a journal");
            let mut messages = Vec::with_capacity(journal.len());
            messages::write(&mut messages, &run, &messages::Form::chat(None));
            assert!(messages.len() > 1000);
        };
        let look = often(9, || {
            assert!(journal.bytes().filter(|b| *b == b'\n').count() > 1);
        });
        let whole = often(9, || build(None));
        let window = often(9, || build(Some(20)));
        let speed = journal.len() as f64 / 1e3 / whole.median();
        out.add(
            &format!("{megabytes} MB, all of it"),
            "ms",
            &whole,
            Some(look.median()),
        );
        out.one(&format!("{megabytes} MB, all of it: speed"), "MB/s", speed);
        let name = format!("{megabytes} MB, a window of 20 iterations");
        out.add(&name, "ms", &window, Some(look.median()));
    }
}
